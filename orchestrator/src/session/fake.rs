//! A fake runtime for tests: it makes nothing, remembers its calls, and fails when a test says so.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use shared_protocol::api::{ImageView, StatsView};
use shared_protocol::{RuntimeName, SessionId};
use tokio::sync::{Semaphore, oneshot};

use crate::runner_address::RunnerAddress;
use crate::runtime::{Origin, ProcessSample, Runtime, RuntimeError, Sandbox, SandboxSpec, WorkspaceMount};
use crate::spec::{LateWorkspaces, SessionSpec};

/// The faults to inject. A number says how many of the next calls fail.
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
    /// Makes `list` fail, as if the engine were gone.
    pub list_fails: bool,
    /// Makes the runtime report that it has no room.
    pub is_full: bool,
    /// Makes pausing unsupported, as on a host without a freezer.
    pub pause_unsupported: bool,
    pub adopt_fails: usize,
    pub mount_fails: usize,
}

#[derive(Default)]
pub struct FakeState {
    pub faults: Faults,
    pub alive: HashMap<SessionId, oneshot::Sender<String>>,
    forsaken: Vec<oneshot::Sender<String>>,
    pub paused: HashSet<SessionId>,
    pub creates: usize,
    pub destroys: usize,
    pub pauses: usize,
    pub last_spec: Option<SandboxSpec>,
    /// The socket of every sandbox's runner. Without it, no runner listens.
    pub runner: Option<PathBuf>,
    /// The sandboxes that got a workspace while they ran.
    pub mounted: Vec<SessionId>,
    /// The first process of every sandbox. `None`: it cannot be seen.
    pub process: Option<ProcessSample>,
    /// How often a first process was continued.
    pub continues: usize,
}

pub struct FakeRuntime {
    state: Mutex<FakeState>,
    /// Permits for creates: a test delays creates by giving none.
    pub gate: Semaphore,
    /// Permits for checks: a test delays checks, as if the image were on a stuck disk.
    pub check_gate: Semaphore,
}

fn hit(count: &mut usize) -> bool {
    let is_hit = *count > 0;
    *count = count.saturating_sub(1);
    is_hit
}

impl FakeRuntime {
    pub fn new() -> Arc<Self> {
        Self::with_gates(Semaphore::MAX_PERMITS, Semaphore::MAX_PERMITS)
    }

    /// A runtime whose creates wait for permits of `gate`.
    pub fn gated() -> Arc<Self> {
        Self::with_gates(0, Semaphore::MAX_PERMITS)
    }

    /// A runtime whose checks wait for permits of `check_gate`.
    pub fn stuck_in_check() -> Arc<Self> {
        Self::with_gates(Semaphore::MAX_PERMITS, 0)
    }

    fn with_gates(creates: usize, checks: usize) -> Arc<Self> {
        let (gate, check_gate) = (Semaphore::new(creates), Semaphore::new(checks));
        Arc::new(Self { state: Mutex::default(), gate, check_gate })
    }

    pub fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn alive(&self) -> usize {
        self.state().alive.len()
    }

    /// Ends a sandbox without being asked, as the kernel would.
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

    async fn images(&self) -> Vec<ImageView> {
        vec![ImageView { name: "base".into(), runtime: self.name(), source: "host".into(), default: false }]
    }

    async fn check(&self, spec: &SessionSpec, _origin: &Origin) -> Result<(), RuntimeError> {
        self.check_gate.acquire().await.expect("the gate is never closed for good").forget();
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
        Ok(Sandbox {
            address: RunnerAddress::Unix(path),
            ended,
            network: None,
            start_dir: None,
            state: None,
            newer_variables: BTreeMap::new(),
        })
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
        // An earlier watcher of this sandbox gets no more events.
        let before = state.alive.insert(id.clone(), sender);
        state.forsaken.extend(before);
        let path = state.runner.clone().unwrap_or_else(|| PathBuf::from(format!("/nowhere/{id}")));
        Ok(Sandbox {
            address: RunnerAddress::Unix(path),
            ended,
            network: None,
            start_dir: None,
            state: None,
            newer_variables: BTreeMap::new(),
        })
    }

    fn late_workspaces(&self) -> LateWorkspaces {
        LateWorkspaces::Mountable
    }

    async fn mount_workspace(&self, id: &SessionId, _: &WorkspaceMount) -> Result<(), RuntimeError> {
        let mut state = self.state();
        if hit(&mut state.faults.mount_fails) {
            return Err(RuntimeError::failed("mount", std::io::Error::other("busy")));
        }
        state.mounted.push(id.clone());
        Ok(())
    }

    async fn stats(&self, id: &SessionId) -> Result<StatsView, RuntimeError> {
        if !self.state().alive.contains_key(id) {
            return Err(RuntimeError::Gone(id.clone()));
        }
        Ok(StatsView { memory_bytes: 1, memory_limit: None, cpu_usage_usec: 2, pids: 3, disk_bytes: None })
    }

    async fn runner_process(&self, _id: &SessionId) -> Option<ProcessSample> {
        self.state().process
    }

    async fn continue_runner(&self, _id: &SessionId) -> Result<(), RuntimeError> {
        self.state().continues += 1;
        Ok(())
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
