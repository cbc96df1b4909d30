//! The wire types between clients and the orchestrator, one file per resource. Errors are `crate::ErrorBody`.
//!
//! Requests refuse unknown fields: a 400 is better than a misspelt option that is silently ignored.

mod exec;
mod fs;
mod image;
mod key;
mod network;
mod pool;
mod port;
mod run;
mod session;
mod time_limit;
mod workspace;

pub use exec::{
    ApiExecRequest, ApiExecView, AttachedFrame, ChunkEvent, DetachedView, ExecDone, ExecReply, StreamErrorEvent,
};
pub use fs::{FsReadView, FsWriteRequest, MkdirRequest, MoveRequest, UploadedView};
pub use image::ImageView;
pub use key::{CreateKeyRequest, KeyList, KeyRole, KeyView, NewKeyView};
pub use network::{
    NetworkDecision, NetworkLogView, NetworkRule, NetworkRuleParts, NetworkRules, NetworkSpec, NetworkVerdict,
    NetworkView, NetworkWish, PackagesView, RegistryProblem, RegistryView, SetNetworkRequest,
};
pub use pool::{PoolView, SetPoolRequest};
pub use port::{DEFAULT_LINK_SECONDS, MAX_LINK_SECONDS, PortUrlRequest, PortUrlView};
pub use run::{ApiRunRequest, RunDone, RunReply};
pub use session::{
    AcquireSource, CreateSessionRequest, OkView, Profile, ResourcesRequest, ResourcesView, SessionStatus, SessionView,
    StatsView, UpdateSessionRequest,
};
pub use time_limit::TimeLimit;
pub use workspace::{WorkspaceList, WorkspaceView};
