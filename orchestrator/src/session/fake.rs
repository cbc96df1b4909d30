//! A runtime for tests: makes nothing, remembers what it was asked, and fails as it is told.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use shared_protocol::api::{ImageView, StatsView};
use shared_protocol::{RuntimeName, SessionId};
use tokio::sync::{Semaphore, oneshot};

use crate::runtime::{RunnerAddress, Runtime, RuntimeError, Sandbox, SandboxSpec, WorkspaceMount};

/// What goes wrong, of each the next so many times.
#[derive(Debug, Default)]
pub struct Faults {
    pub create_fails: usize,
    pub create_hangs: usize,
    pub ends_in_create: usize,
    pub destroy_fails: usize,
    pub destroy_hangs: usize,
    pub resume_fails: usize,
    pub pause_fails: usize,
    pub pause_hangs: usize,
    /// As when its engine is gone.
    pub list_fails: bool,
    /// The last place is taken.
    pub is_full: bool,
    /// On a host without a freezer.
    pub pause_unsupported: bool,
    pub adopt_fails: usize,
    pub give_fails: usize,
}

#[derive(Default)]
pub struct State {
    pub faults: Faults,
    pub alive: HashMap<SessionId, oneshot::Sender<String>>,
    forsaken: Vec<oneshot::Sender<String>>,
    pub paused: HashSet<SessionId>,
    pub creates: usize,
    pub destroys: usize,
    pub pauses: usize,
    pub last_spec: Option<SandboxSpec>,
    /// Where all runners are; without one, nowhere.
    pub runner: Option<PathBuf>,
    /// Workspaces that were given to sandboxes that ran.
    pub given: Vec<SessionId>,
}

pub struct FakeRuntime {
    state: Mutex<State>,
    /// A create needs a permit: tests hold it back by closing the gate.
    pub gate: Semaphore,
}

fn hit(count: &mut usize) -> bool {
    let is_hit = *count > 0;
    *count = count.saturating_sub(1);
    is_hit
}

impl FakeRuntime {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), gate: Semaphore::new(Semaphore::MAX_PERMITS) })
    }

    /// One whose creates wait for permits of its gate.
    pub fn gated() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), gate: Semaphore::new(0) })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn alive(&self) -> usize {
        self.state().alive.len()
    }

    /// Ends a sandbox as a kernel would: unasked.
    pub fn crash(&self, id: &SessionId, reason: &str) {
        let sender = self.state().alive.remove(id).expect("the sandbox is alive");
        let _ = sender.send(reason.to_owned());
    }
}

#[async_trait]
impl Runtime for FakeRuntime {
    fn name(&self) -> RuntimeName {
        RuntimeName::new("local").expect("a valid name")
    }

    fn images(&self) -> Vec<ImageView> {
        vec![ImageView { name: "base".into(), runtime: self.name(), source: "host".into(), default: false }]
    }

    fn check(&self, spec: &SandboxSpec) -> Result<(), RuntimeError> {
        if spec.image == "base" { Ok(()) } else { Err(RuntimeError::InvalidImage(format!("no image {}", spec.image))) }
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, RuntimeError> {
        self.gate.acquire().await.expect("the gate is never closed for good").forget();
        let hangs = {
            let mut state = self.state();
            state.creates += 1;
            state.last_spec = Some(spec.clone());
            if state.faults.is_full {
                return Err(RuntimeError::Full("all blocks are taken".into()));
            }
            if hit(&mut state.faults.create_fails) {
                return Err(RuntimeError::failed("mount the root", std::io::Error::other("no space left")));
            }
            hit(&mut state.faults.create_hangs)
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        let mut state = self.state();
        let (sender, ended) = oneshot::channel();
        if hit(&mut state.faults.ends_in_create) {
            let _ = sender.send("exited with 1".into());
        } else {
            state.alive.insert(spec.id.clone(), sender);
        }
        let path = state.runner.clone().unwrap_or_else(|| PathBuf::from(format!("/nowhere/{}", spec.id)));
        Ok(Sandbox { address: RunnerAddress::Unix(path), ended })
    }

    async fn adopt(&self, id: &SessionId) -> Result<Sandbox, RuntimeError> {
        let mut state = self.state();
        if hit(&mut state.faults.adopt_fails) {
            return Err(RuntimeError::failed("ask the engine", std::io::Error::other("no answer")));
        }
        if !state.alive.contains_key(id) {
            return Err(RuntimeError::Gone(id.clone()));
        }
        let (sender, ended) = oneshot::channel();
        // Who watched it before sees nothing any more.
        let before = state.alive.insert(id.clone(), sender);
        state.forsaken.extend(before);
        let path = state.runner.clone().unwrap_or_else(|| PathBuf::from(format!("/nowhere/{id}")));
        Ok(Sandbox { address: RunnerAddress::Unix(path), ended })
    }

    fn can_give_workspace(&self) -> bool {
        true
    }

    async fn give_workspace(&self, id: &SessionId, _: &WorkspaceMount) -> Result<(), RuntimeError> {
        let mut state = self.state();
        if hit(&mut state.faults.give_fails) {
            return Err(RuntimeError::failed("mount", std::io::Error::other("busy")));
        }
        state.given.push(id.clone());
        Ok(())
    }

    async fn stats(&self, id: &SessionId) -> Result<StatsView, RuntimeError> {
        if !self.state().alive.contains_key(id) {
            return Err(RuntimeError::Gone(id.clone()));
        }
        Ok(StatsView { memory_bytes: 1, memory_limit: None, cpu_usage_usec: 2, pids: 3, disk_bytes: None })
    }

    async fn pause(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let hangs = {
            let mut state = self.state();
            state.pauses += 1;
            if state.faults.pause_unsupported {
                return Err(RuntimeError::Unsupported("no freezer".into()));
            }
            if hit(&mut state.faults.pause_fails) {
                return Err(RuntimeError::failed("freeze", std::io::Error::other("busy")));
            }
            state.paused.insert(id.clone());
            hit(&mut state.faults.pause_hangs)
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn resume(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let mut state = self.state();
        if hit(&mut state.faults.resume_fails) {
            return Err(RuntimeError::failed("thaw", std::io::Error::other("busy")));
        }
        state.paused.remove(id);
        Ok(())
    }

    async fn destroy(&self, id: &SessionId) -> Result<(), RuntimeError> {
        let hangs = {
            let mut state = self.state();
            state.destroys += 1;
            if hit(&mut state.faults.destroy_fails) {
                return Err(RuntimeError::failed("unmount", std::io::Error::other("busy")));
            }
            hit(&mut state.faults.destroy_hangs)
        };
        if hangs {
            std::future::pending::<()>().await;
        }
        let mut state = self.state();
        state.alive.remove(id);
        state.paused.remove(id);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<SessionId>, RuntimeError> {
        let state = self.state();
        if state.faults.list_fails {
            return Err(RuntimeError::failed("list", std::io::Error::other("gone")));
        }
        Ok(state.alive.keys().cloned().collect())
    }
}
