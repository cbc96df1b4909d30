//! The preset `packages`: the registries that this host's own package managers use. They are asked once, and again when somebody
//! wants it; the answer is kept in the data directory.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use network_policy::{Policy, Rule, Side};
use registries::{CommandFetch, Detected, LocalTools, ProblemKind, detect};

/// The name of the file in the data directory.
const FILE: &str = "packages.json";
/// How long an answer counts in which a registry is missing, because it did not answer.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(600);
/// The largest file that is read.
const MAX_FILE_BYTES: u64 = 4 << 20;

#[derive(Debug, thiserror::Error)]
pub enum DetectError {
    #[error("the package managers could not be asked")]
    Asking,
    #[error("the answer could not be kept in {path}")]
    Keeping {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

#[derive(Debug)]
pub struct Packages {
    file: PathBuf,
    known: Mutex<Option<(Detected, Arc<Policy>)>>,
    /// When the package managers were asked last, by this daemon.
    asked_at: Mutex<Option<Instant>>,
    /// Held by the one who asks the package managers.
    asking: tokio::sync::Mutex<()>,
    ask: fn() -> Detected,
}

impl Packages {
    /// Reads what was found out before.
    pub fn open(data_dir: &Path) -> Self {
        let file = data_dir.join(FILE);
        let known = read(&file).map(|detected| {
            let policy = Arc::new(policy(&detected));
            (detected, policy)
        });
        Self {
            file,
            known: Mutex::new(known),
            asked_at: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            ask: ask_host,
        }
    }

    /// Packages of a host without package managers.
    #[cfg(any(test, fuzzing))]
    pub fn of_nobody() -> Self {
        Self { ask: Detected::default, ..Self::open(Path::new("/nonexistent")) }
    }

    /// The rules, if they are known and there are any.
    pub fn policy(&self) -> Option<Arc<Policy>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().map(|(_, policy)| policy.clone()).filter(|policy| !policy.allow().is_empty())
    }

    /// The variables that lead the package managers of a sandbox to the same registries.
    pub fn variables(&self) -> Vec<(String, String)> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let variables = known.iter().flat_map(|(detected, _)| &detected.variables);
        variables.map(|variable| (variable.name.clone(), variable.value.clone())).collect()
    }

    /// What the package managers said.
    pub fn detected(&self) -> Option<Detected> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(detected, _)| detected.clone())
    }

    /// Asks the package managers, unless they were asked before.
    pub async fn find_out_once(&self) {
        if self.detected().is_some_and(|detected| !self.is_worth_asking_again(&detected)) {
            return;
        }
        let _asking = self.asking.lock().await;
        if self.detected().is_none_or(|detected| self.is_worth_asking_again(&detected))
            && let Err(error) = self.ask().await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "the registries of this host are not known");
        }
    }

    /// Whether a registry did not answer when it was asked, and may answer now.
    fn is_worth_asking_again(&self, detected: &Detected) -> bool {
        let asked_at = *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner);
        asked_at.is_none_or(|at| at.elapsed() > ASK_AGAIN_AFTER)
            && detected.problems.iter().any(|problem| problem.kind == ProblemKind::Registry)
    }

    /// Asks the package managers now.
    pub async fn find_out(&self) -> Result<Detected, DetectError> {
        let _asking = self.asking.lock().await;
        self.ask().await
    }

    async fn ask(&self) -> Result<Detected, DetectError> {
        *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let asking = tokio::task::spawn_blocking(self.ask);
        let detected = asking.await.map_err(|_| DetectError::Asking)?;
        let policy = Arc::new(policy(&detected));
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((detected.clone(), policy));
        let (file, text) = (self.file.clone(), serde_json::to_vec_pretty(&detected).unwrap_or_default());
        let written = tokio::task::spawn_blocking(move || write(&file, &text)).await;
        let kept = written.unwrap_or_else(|_| Err(std::io::Error::other("the thread panicked")));
        kept.map_err(|source| DetectError::Keeping { path: self.file.clone(), source })?;
        Ok(detected)
    }
}

fn ask_host() -> Detected {
    detect(&LocalTools, &CommandFetch::new(&LocalTools))
}

fn policy(detected: &Detected) -> Policy {
    let rules = detected.rules().into_iter().filter_map(|rule| {
        let made = Rule::from_parts(&rule.host, &rule.ports, rule.is_private, Side::Allow);
        // A registry that is an address is named by its range.
        let made = made.or_else(|error| {
            if rule.is_private { Rule::from_parts(&rule.host, &rule.ports, false, Side::Allow) } else { Err(error) }
        });
        made.inspect_err(|error| tracing::warn!(host = %rule.host, %error, "a registry cannot be a rule")).ok()
    });
    Policy::new(rules.take(network_policy::MAX_RULES).collect(), Vec::new()).unwrap_or_default()
}

fn read(file: &Path) -> Option<Detected> {
    let size = std::fs::metadata(file).ok()?.len();
    if size > MAX_FILE_BYTES {
        return None;
    }
    let text = std::fs::read(file).ok()?;
    let read = serde_json::from_slice(&text);
    read.inspect_err(|error| tracing::warn!(%error, file = %file.display(), "the file is ignored")).ok()
}

/// Replaces the file as a whole.
fn write(file: &Path, text: &[u8]) -> std::io::Result<()> {
    let new = file.with_extension("json.new");
    std::fs::write(&new, text)?;
    std::fs::rename(&new, file)
}
