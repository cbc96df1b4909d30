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
mod secret;
mod session;
mod snapshot;
mod time_limit;
mod tool;
mod workspace;

pub use exec::{
    ApiExecRequest, ApiExecView, AttachedFrame, ChunkEvent, CompactFacts, DetachedView, ExecDone, ExecReply,
    MIN_COMPACT_TOKENS, OutputView, StreamErrorEvent,
};
pub use fs::{FsReadView, FsWriteRequest, MkdirRequest, MoveRequest, UploadedView};
pub use image::{
    CommitImageRequest, CreateFrame, ImageDetailsView, ImageView, PullFrame, PullImageRequest, PullProgress,
    RemovedImagesView,
};
pub use key::{CreateKeyRequest, KeyList, KeyRole, KeyView, NewKeyView};
pub use network::{
    InjectionSpec, NetworkDecision, NetworkLogView, NetworkRule, NetworkRuleParts, NetworkRules, NetworkSpec,
    NetworkVerdict, NetworkView, NetworkWish, PackagesView, RegistryProblem, RegistryVariable, RegistryView,
    SetNetworkRequest,
};
pub use pool::{PoolView, SetPoolRequest};
pub use port::{DEFAULT_LINK_SECONDS, MAX_LINK_SECONDS, PortUrlRequest, PortUrlView};
pub use run::{ApiRunRequest, RunDone, RunReply};
pub use secret::{SecretList, SecretText, SecretView, SetSecretRequest};
pub use session::{
    AcquireSource, CreateSessionRequest, OkView, Profile, ResourcesRequest, ResourcesView, SessionStatus, SessionUser,
    SessionView, StatsView, UpdateSessionRequest,
};
pub use snapshot::{
    CreateSnapshotRequest, ForkRequest, ForkView, MAX_FORKS, MAX_SNAPSHOT_NAME_BYTES, SnapshotList, SnapshotView,
};
pub use time_limit::TimeLimit;
pub use tool::{ToolContentView, ToolReplyView};
pub use workspace::{WorkspaceKind, WorkspaceList, WorkspaceView};
