//! Tests of `maven`, on a machine and a network that are made of maps.

use super::*;
use crate::testing::FakeMachine;

const MODEL: &str = "<project><repositories><repository><id>central</id><url>https://central.test/maven2</url></repository>\
                     </repositories><pluginRepositories><pluginRepository><url>https://plugins.test/</url></pluginRepository>\
                     </pluginRepositories></project>";

fn machine() -> FakeMachine {
    FakeMachine::new()
        .command("mvn -v", "Apache Maven 9.9\nMaven home: /opt/maven\nJava version: 99\n")
        .file("/opt/maven/lib/maven-model-builder-9.9.jar", "")
        .command("unzip -p /opt/maven/lib/maven-model-builder-9.9.jar", MODEL)
}

#[test]
fn the_inherited_model_tells_the_built_in_repositories() {
    assert_eq!(machine().ask(ask).hosts(), ["central.test:443", "plugins.test:443"]);
}

#[test]
fn a_mirror_of_everything_replaces_the_built_in_repositories() {
    let settings = "<settings><!-- <mirror><url>https://no.test/</url></mirror> --><mirrors>\
                    <mirror><mirrorOf>*</mirrorOf><url> https://mirror.test/m2 </url></mirror>\
                    <mirror><mirrorOf>http</mirrorOf><url>http://0.0.0.0/</url><blocked>true</blocked></mirror></mirrors></settings>";
    let asked = machine().file("/home/ann/.m2/settings.xml", settings).ask(ask);
    assert_eq!(asked.hosts(), ["mirror.test:443"]);
}

#[test]
fn an_archive_is_read_by_python_if_there_is_no_unzip() {
    let machine = FakeMachine::new()
        .command("mvn -v", "Maven home: /opt/maven")
        .file("/opt/maven/lib/maven-model-builder-9.9.jar", "")
        .command("python3 -c", MODEL);
    assert_eq!(machine.ask(ask).hosts(), ["central.test:443", "plugins.test:443"]);
}

#[test]
fn a_comment_or_an_element_without_an_end_is_harmless() {
    let asked = machine().file("/opt/maven/conf/settings.xml", "<mirror><url>https://x.test <!-- <mirror>").ask(ask);
    assert_eq!(asked.hosts(), ["central.test:443", "plugins.test:443"]);
}
