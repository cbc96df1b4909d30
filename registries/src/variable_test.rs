use super::*;

fn url(text: &str) -> Part {
    Part::Url(SourceUrl::parse(text).unwrap())
}

fn offer(tool: &'static str, name: &str, value: Vec<Part>) -> Offer {
    Offer { tool, name: name.to_owned(), value }
}

fn values(offers: &[Offer]) -> Vec<(String, String)> {
    let (variables, _) = variables(offers, &BTreeMap::new());
    variables.into_iter().map(|variable| (variable.name, variable.value)).collect()
}

#[test]
fn a_value_is_made_of_its_parts_and_the_first_offer_wins() {
    let proxies = vec![url("https://one.example.com/go"), Part::Text(",".into()), url("http://two.example.com:8081/x")];
    let offers = [
        offer("go", "GOPROXY", [proxies, vec![Part::Text("|direct".into())]].concat()),
        offer("npm", "NPM_CONFIG_REGISTRY", vec![url("https://npm.example.com/a/")]),
        offer("pnpm", "NPM_CONFIG_REGISTRY", vec![url("https://pnpm.example.com/")]),
    ];
    let expected = [
        ("GOPROXY", "https://one.example.com/go,http://two.example.com:8081/x|direct"),
        ("NPM_CONFIG_REGISTRY", "https://npm.example.com/a/"),
    ];
    assert_eq!(values(&offers), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn no_credentials_get_into_a_value_or_a_note() {
    let secret = "https://ann:hunter2@mirror.example.com/simple?token=hunter2#hunter2";
    let (variables, problems) = variables(&[offer("pip", "PIP_INDEX_URL", vec![url(secret)])], &BTreeMap::new());
    assert_eq!(variables[0].value, "https://mirror.example.com/simple");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].message.contains("without its credentials"), "{problems:?}");
    assert!(!format!("{variables:?}{problems:?}").contains("hunter2"));
}

#[test]
fn a_path_that_may_hold_a_token_is_not_passed_on() {
    let is_passed = |path: &str| {
        let url = format!("https://mirror.example.com/{path}");
        let (variables, problems) =
            variables(&[offer("pip", "PIP_INDEX_URL", vec![self::url(&url)])], &BTreeMap::new());
        assert_eq!(variables.len() + problems.len(), 1, "{path}: a variable, or a note why there is none");
        assert!(!format!("{problems:?}").contains(path), "{problems:?}");
        variables.len() == 1
    };
    for path in [
        "simple",
        "artifactory/api/pypi/pypi-remote/simple/",
        "repository/maven-public-2024/",
        "nexus3/content/groups/internationalization",
        "feeds/py3.11-linux_x86_64/simple",
    ] {
        assert!(is_passed(path), "{path}");
    }
    for path in [
        "q8Z2mK7pLw9xN4vT/org/simple",
        "basic/0a1b2c3d4e5f60718293a4b5c6d7e8f9/simple",
        "basic/npm_q8Z2mK7pLw9xN4vTq8Z2mK7pLw/",
        "t/550e8400-e29b-41d4-a716-446655440000/simple",
        "AbCdEfGhIjKlMnOpQrSt/",
        "a%71b8Z2mK7pLw9xN4vT/",
    ] {
        assert!(!is_passed(path), "{path}");
    }
}

#[test]
fn a_mirror_on_this_machine_is_not_offered_because_no_sandbox_reaches_it() {
    let offers = [offer("pip", "PIP_INDEX_URL", vec![url("http://mirror.example.com:3141/simple")])];
    let places = BTreeMap::from([("mirror.example.com".to_owned(), Place::Unreachable)]);
    assert_eq!(variables(&offers, &places), (Vec::new(), Vec::new()));
}

#[test]
fn a_value_that_no_shell_should_see_is_left_out() {
    for text in ["a\nb".to_owned(), "a\u{1b}[2J".to_owned(), "x".repeat(MAX_VALUE_BYTES + 1)] {
        let (variables, problems) = variables(&[offer("go", "GOPRIVATE", vec![Part::Text(text)])], &BTreeMap::new());
        assert!(variables.is_empty() && problems.len() == 1, "{problems:?}");
    }
}
