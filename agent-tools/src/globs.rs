//! Globs that choose paths.
//!
//! A glob without a slash matches a name at any depth (`*.rs`); one with a slash matches the path from the root (`src/**/*.rs`). `*` and `?`
//! do not match a slash, `**` does; `[ab]` and `{a,b}` are alternatives. Matching takes time linear in the path.

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// More globs are refused.
pub const MAX_GLOBS: usize = 256;
/// A longer glob is refused.
pub const MAX_GLOB_BYTES: usize = 1024;

/// Why globs were refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GlobError {
    #[error("the glob {glob:?} is not valid: {reason}")]
    Invalid { glob: String, reason: String },
    #[error("the glob {glob:?} starts with !, which has no meaning here; give it without the ! as a glob to exclude")]
    Negated { glob: String },
    #[error("a glob has {bytes} bytes, and at most {MAX_GLOB_BYTES} are allowed")]
    TooLong { bytes: usize },
    #[error("there are {count} globs, and at most {MAX_GLOBS} are allowed")]
    TooMany { count: usize },
}

/// A set of globs.
#[derive(Clone, Debug)]
pub struct Globs {
    names: GlobSet,
    paths: GlobSet,
}

impl Globs {
    pub fn new<G: AsRef<str>>(globs: &[G]) -> Result<Self, GlobError> {
        if globs.len() > MAX_GLOBS {
            return Err(GlobError::TooMany { count: globs.len() });
        }
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for glob in globs.iter().map(AsRef::as_ref) {
            if glob.len() > MAX_GLOB_BYTES {
                return Err(GlobError::TooLong { bytes: glob.len() });
            }
            if glob.starts_with('!') {
                return Err(GlobError::Negated { glob: glob.to_owned() });
            }
            let bare = glob.trim_end_matches('/');
            let bare = bare.strip_prefix("./").unwrap_or(bare);
            let (set, bare) =
                if bare.contains('/') { (&mut paths, bare.trim_start_matches('/')) } else { (&mut names, bare) };
            let compiled =
                GlobBuilder::new(bare).literal_separator(true).backslash_escape(true).empty_alternates(true).build();
            set.add(compiled.map_err(|error| invalid(glob, &error))?);
        }
        let all = || globs.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
        let [names, paths] = [names, paths].map(|set| set.build().map_err(|error| invalid(&all(), &error)));
        Ok(Self { names: names?, paths: paths? })
    }

    /// Whether there are no globs; then none matches.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
    }

    /// Whether one of the globs matches a path, which is relative to the root.
    pub fn matches(&self, path: &[u8]) -> bool {
        let path = path.strip_prefix(b"./").unwrap_or(path);
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let is_match =
            |set: &GlobSet, bytes| !set.is_empty() && set.is_match_candidate(&Candidate::new(as_path(bytes)));
        is_match(&self.names, name) || is_match(&self.paths, path)
    }

    /// Whether one of the globs matches a path or a directory above it.
    pub fn matches_or_contains(&self, path: &[u8]) -> bool {
        !self.is_empty()
            && (self.matches(path) || memchr::memchr_iter(b'/', path).any(|slash| self.matches(&path[..slash])))
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn invalid(glob: &str, error: &globset::Error) -> GlobError {
    GlobError::Invalid { glob: glob.chars().take(200).collect(), reason: error.kind().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_match_at_any_depth_and_paths_from_the_root() {
        for (glob, path, is_match) in [
            ("*.rs", "src/a/b.rs", true),
            ("src/*.rs", "src/a.rs", true),
            ("src/*.rs", "src/a/b.rs", false),
            ("src/*.rs", "x/src/a.rs", false),
            ("src/**/*.rs", "src/a.rs", true),
            ("**/test/*", "a/test/b", true),
            ("/a", "a", true),
            ("./a/b", "a/b", true),
            ("target/", "x/target", true),
            ("*.{js,ts}", "a.ts", true),
            ("[ab]", "c", false),
            (".*", ".env", true),
        ] {
            assert_eq!(Globs::new(&[glob]).unwrap().matches(path.as_bytes()), is_match, "{glob} {path}");
        }
        assert!(Globs::new(&["a*"]).unwrap().matches(b"x/a\xff\n"));
    }

    #[test]
    fn a_directory_stands_for_what_is_in_it() {
        let globs = Globs::new(&["node_modules", "a/b"]).unwrap();
        assert!(globs.matches_or_contains(b"x/node_modules/y/z") && globs.matches_or_contains(b"a/b/c"));
        assert!(!globs.matches_or_contains(b"x/a/b") && !globs.matches(b"node_modules/y"));
    }

    #[test]
    fn bad_globs_say_what_is_wrong() {
        let error = |glob: &str| Globs::new(&[glob]).unwrap_err().to_string();
        assert!(error("a[").starts_with("the glob \"a[\" is not valid: unclosed character class"), "{}", error("a["));
        assert!(error("!*.js").contains("without the !"));
        assert!(error(&"a".repeat(MAX_GLOB_BYTES + 1)).contains("at most 1024"));
        assert!(Globs::new(&["a"; MAX_GLOBS + 1]).is_err());
    }

    proptest! {
        #[test]
        fn no_glob_and_no_path_makes_it_panic(glob in "[a*?\\[\\]{},!/\\\\.é-]{0,12}", path in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(globs) = Globs::new(&[glob]) {
                globs.matches_or_contains(&path);
            }
        }
    }
}
