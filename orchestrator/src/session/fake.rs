//! A runtime for tests: makes nothing, remembers what it was asked, and fails as it is told.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use shared_protocol::api::{ImageView, StatsView};
use shared_protocol::{RuntimeName, SessionId};
use tokio::sync::{Semaphore, oneshot};

use crate::runtime::{RunnerAddress, Runtime, RuntimeError, Sandbox, SandboxSpec};

/// What goes wrong, of each the next so many times.
#[derive(Debug, Default)]
pub struct Faults {
    pub create_fails: usize,
    pub create_hangs: usize,
    pub ends_in_create: usize,
    pub destroy_fails: usize,
    pub destroy_hangs: usize,
    pub resume_fails: usize,
}

#[derive(Default)]
pub struct State {
    pub faults: Faults,
    pub alive: HashMap<SessionId, oneshot::Sender<String>>,
    pub paused: HashSet<SessionId>,
    pub creates: usize,
    pub destroys: usize,
    pub last_spec: Option<SandboxSpec>,
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
        Ok(Sandbox { address: RunnerAddress::Unix(PathBuf::from(format!("/nowhere/{}", spec.id))), ended })
    }

    async fn adopt(&self, id: &SessionId) -> Result<Sandbox, RuntimeError> {
        Err(RuntimeError::Gone(id.clone()))
    }

    async fn stats(&self, id: &SessionId) -> Result<StatsView, RuntimeError> {
        if !self.state().alive.contains_key(id) {
            return Err(RuntimeError::Gone(id.clone()));
        }
        Ok(StatsView { memory_bytes: 1, memory_limit: None, cpu_usage_usec: 2, pids: 3, disk_bytes: None })
    }

    async fn pause(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.state().paused.insert(id.clone());
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
        self.state().alive.remove(id);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<SessionId>, RuntimeError> {
        Ok(self.state().alive.keys().cloned().collect())
    }
}
