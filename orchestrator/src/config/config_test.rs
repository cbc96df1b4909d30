//! What wins over what, and how a mistake is told.

use super::*;

fn load(flags: ServeFlags, variables: &[(&str, &str)]) -> Result<Config, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::from([("HOME".to_owned(), "/nowhere/home".to_owned())]);
    all.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    Config::resolve(&flags, all).map_err(|e| e.to_string())
}

fn with_file(text: &str) -> (tempfile::TempDir, ServeFlags) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cove.toml");
    std::fs::write(&path, text).unwrap();
    (folder, ServeFlags { config: Some(path), ..ServeFlags::default() })
}

#[test]
fn without_a_word_everything_has_a_default() {
    let config = load(ServeFlags::default(), &[]).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.data_dir, PathBuf::from("/nowhere/home/.local/share/cove"));
    assert_eq!(config.sessions.max_sessions, 1024);
    let config = load(ServeFlags::default(), &[("XDG_DATA_HOME", "/nowhere/data")]).unwrap();
    assert_eq!(config.data_dir, PathBuf::from("/nowhere/data/cove"));
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let (_folder, mut flags) = with_file(
        "data_dir = '/from/file'\n[server]\nlisten = '127.0.0.1:1'\n[sessions]\nmax_sessions = 7\ndefault_cpus = 1\n[images]\npython = 'host'\n",
    );
    flags.listen = Some("127.0.0.1:3".into());
    let variables = [("COVE_SESSIONS_MAX_SESSIONS", "8"), ("COVE_LISTEN", "127.0.0.1:2"), ("COVE_DATA_DIR", "")];
    let config = load(flags, &variables).unwrap();
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(config.sessions.max_sessions, 8);
    assert_eq!(config.data_dir, PathBuf::from("/from/file"));
    assert_eq!(config.images["python"], "host");
}

#[test]
fn a_mistake_is_one_line_that_names_its_place_and_what_is_allowed() {
    for (text, parts) in [
        ("[server]\nlisten = 'x'", ["cove.toml: server.listen", "127.0.0.1:8080"]),
        ("[server]\nlistne = '127.0.0.1:1'", ["cove.toml: server.listne", "not a setting"]),
        ("[sessions]\nmax_sessions = -1", ["sessions.max_sessions", "whole number from 0"]),
        ("[sessions]\ndefault_cpus = 'x'", ["sessions.default_cpus", "number from 0.01"]),
        ("[sessions]\nmax_pids = 32\ndefault_pids = 64", ["sessions.default_pids", "above its maximum"]),
        ("a =\n\n", ["cove.toml:1", ""]),
        ("[server]\nallowed_hosts = [1]", ["server.allowed_hosts", "list of strings"]),
        ("nonsense = 1", ["cove.toml: nonsense", "not a setting"]),
        ("[docker]\nnetwork = 'host'", ["cove.toml: docker.network", "network of the engine"]),
        ("[docker]\nnetwork = 'container:x'", ["cove.toml: docker.network", "network of the engine"]),
        ("[docker]\nsocket = 'tcp://x'", ["cove.toml: docker.socket", "absolute path"]),
        ("[docker]\npull = 'always'", ["cove.toml: docker.pull", "configured, any or never"]),
        ("[docker]\nroot_quota = 1", ["cove.toml: docker.root_quota", "true or false"]),
        ("[docker.images]\nbase = 1", ["cove.toml: docker.images", "table of strings"]),
    ] {
        let (_folder, flags) = with_file(text);
        let error = load(flags, &[]).expect_err(text);
        assert!(parts.iter().all(|part| error.contains(part)), "{text:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let error = load(ServeFlags::default(), &[("COVE_SERVER_LISTNE", "x")]).unwrap_err();
    assert!(error.starts_with("COVE_SERVER_LISTNE "), "{error}");
    let error = load(ServeFlags::default(), &[("COVE_LOG_FORMAT", "xml")]).unwrap_err();
    assert_eq!(error, r#"COVE_LOG_FORMAT must be text or json, not "xml""#);
    let flags = ServeFlags { runtime: Some("nonsense".into()), ..ServeFlags::default() };
    assert_eq!(load(flags, &[]).unwrap_err(), r#"--runtime must be one of local, docker, not "nonsense""#);
    let flags = ServeFlags { max_sessions: Some("many".into()), ..ServeFlags::default() };
    assert!(load(flags, &[]).unwrap_err().starts_with("--max-sessions must be a whole number"));
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let flags = ServeFlags { config: Some("/nowhere/cove.toml".into()), ..ServeFlags::default() };
    assert!(load(flags, &[]).unwrap_err().contains("/nowhere/cove.toml"));
    assert!(
        load(ServeFlags::default(), &[("COVE_CONFIG", "/nowhere/x.toml")]).unwrap_err().contains("/nowhere/x.toml")
    );
}

#[test]
fn variables_of_others_are_left_alone() {
    load(ServeFlags::default(), &[("COVE_RUNNER_BIN", "x"), ("COVE_URL", "y"), ("COVERAGE", "z")]).unwrap();
}

#[test]
fn a_public_address_needs_a_key_of_ones_own() {
    for listen in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80"] {
        let flags = || ServeFlags { listen: Some(listen.into()), ..ServeFlags::default() };
        assert!(load(flags(), &[]).unwrap_err().contains("COVE_API_KEY"));
        load(flags(), &[("COVE_API_KEY", "long-enough")]).unwrap();
    }
    load(ServeFlags { listen: Some("[::1]:80".into()), ..ServeFlags::default() }, &[]).unwrap();
}

#[test]
fn a_key_is_never_printed_and_must_fit_a_header() {
    let config = load(ServeFlags::default(), &[("COVE_API_KEY", "hush-hush-hush")]).unwrap();
    assert!(!format!("{config:?}").contains("hush"));
    for bad in ["short", "with space in it", "ümlaut-ümlaut"] {
        let error = load(ServeFlags::default(), &[("COVE_API_KEY", bad)]).unwrap_err();
        assert!(error.starts_with("COVE_API_KEY ") && !error.contains(bad), "{error}");
    }
}

#[test]
fn an_engine_is_looked_for_only_where_somebody_speaks_of_it() {
    assert!(!load(ServeFlags::default(), &[]).unwrap().docker.is_configured);
    let (_folder, flags) = with_file("[docker]\noci_runtime = 'runsc'\n[docker.images]\nbase = 'debian:12'\n");
    let docker = load(flags, &[("COVE_DOCKER_SOCKET", "unix:///run/x.sock")]).unwrap().docker;
    assert!(docker.is_configured && docker.root_quota);
    assert_eq!(docker.socket, PathBuf::from("/run/x.sock"));
    assert_eq!(docker.images["base"], "debian:12");
    let docker = load(ServeFlags::default(), &[("COVE_DOCKER_IMAGES", "base=a:1, node=b")]).unwrap().docker;
    assert_eq!(docker.images, BTreeMap::from([("base".into(), "a:1".into()), ("node".into(), "b".into())]));
}
