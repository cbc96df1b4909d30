//! Tests of the precedence of settings and of error messages.

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
    assert_eq!(config.images.names["python"], "host");
}

#[test]
fn a_mistake_is_one_line_that_names_its_place_and_what_is_allowed() {
    for (text, parts) in [
        ("[server]\nlisten = 'x'", ["cove.toml:2: server.listen", "127.0.0.1:8080"]),
        (
            "[server]\nlistne = '127.0.0.1:1'",
            ["cove.toml:2: server.listne", "not a setting of cove; did you mean server.listen?"],
        ),
        ("[sessions]\nmax_sessions = -1", ["sessions.max_sessions", "whole number from 0"]),
        ("[sessions]\ndefault_cpus = 'x'", ["sessions.default_cpus", "number from 0.01"]),
        ("[sessions]\nmax_pids = 32\ndefault_pids = 64", ["sessions.default_pids", "above its maximum"]),
        ("a =\n\n", ["cove.toml:1", ""]),
        ("[server]\nallowed_hosts = [1]", ["server.allowed_hosts", "list of strings"]),
        ("\n# grüße\nnonsense = 1", ["cove.toml:3: nonsense", "is not a setting of cove"]),
        ("max_sessions = 1", ["cove.toml:1: max_sessions", "did you mean sessions.max_sessions?"]),
        ("[image]\npython = 'x'", ["cove.toml:2: image.python", "did you mean images.python?"]),
        ("[images]\npython = 'no such'", ["cove.toml:2: images.python", "host or the name of an image"]),
        ("x = 1\n\ny = [", ["cove.toml:3", ""]),
        ("[docker]\nnetwork = 'host'", ["cove.toml:2: docker.network", "network of the engine"]),
        ("[docker]\nnetwork = 'container:x'", ["cove.toml:2: docker.network", "network of the engine"]),
        ("[docker]\nsocket = 'tcp://x'", ["cove.toml:2: docker.socket", "absolute path"]),
        ("[docker]\npull = 'always'", ["cove.toml:2: docker.pull", "configured, any or never"]),
        ("[docker]\nroot_quota = 1", ["cove.toml:2: docker.root_quota", "true or false"]),
        ("data_dir = ''", ["cove.toml:1: data_dir", "cannot be used"]),
        ("[server]\napi_key_file = '/dev/zero'", ["cove.toml:2: server.api_key_file", "printable"]),
        ("[docker.images]\nbase = 1", ["cove.toml:1: docker.images", "table of strings"]),
    ] {
        let (_folder, flags) = with_file(text);
        let error = load(flags, &[]).expect_err(text);
        assert!(parts.iter().all(|part| error.contains(part)), "{text:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let error = load(ServeFlags::default(), &[("COVE_SERVER_LISTNE", "x")]).unwrap_err();
    assert_eq!(error, "COVE_SERVER_LISTNE is not a setting of cove; did you mean COVE_SERVER_LISTEN?");
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

#[test]
fn a_socket_is_an_absolute_path_with_or_without_its_scheme() {
    for (given, path) in
        [("unix:/run/cove.sock", "/run/cove.sock"), ("/a/b", "/a/b"), ("unix:///run/cove.sock", "/run/cove.sock")]
    {
        let flags = ServeFlags { socket: Some(given.into()), ..ServeFlags::default() };
        assert_eq!(load(flags, &[]).unwrap().server.socket, Some(PathBuf::from(path)), "{given}");
    }
    let error = load(ServeFlags::default(), &[("COVE_SERVER_SOCKET", "cove.sock")]).unwrap_err();
    assert_eq!(error, r#"COVE_SERVER_SOCKET must be unix: and an absolute path, not "cove.sock""#);
    assert_eq!(load(ServeFlags::default(), &[]).unwrap().server.socket, None);
}

#[test]
fn the_audit_log_is_in_the_data_directory_unless_it_is_told_where() {
    let audit = load(ServeFlags::default(), &[]).unwrap().audit;
    assert_eq!(audit.path, PathBuf::from("/nowhere/home/.local/share/cove/audit.log"));
    assert_eq!((audit.max_bytes, audit.keep), (64 << 20, 4));
    let (_folder, flags) = with_file("[audit]\npath = '/var/log/cove.log'\nmax_mb = 1\nkeep = 0");
    let audit = load(flags, &[]).unwrap().audit;
    assert_eq!(audit, AuditConfig { path: "/var/log/cove.log".into(), max_bytes: 1 << 20, keep: 0 });
    assert!(load(ServeFlags::default(), &[("COVE_AUDIT_PATH", "x")]).unwrap_err().contains("absolute path"));
    assert!(load(ServeFlags::default(), &[("COVE_AUDIT_KEEP", "101")]).unwrap_err().contains("0 to 100"));
}
