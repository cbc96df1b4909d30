//! What clients and the orchestrator say to each other. One file a resource; errors are `crate::ErrorBody`.
//!
//! Requests refuse fields they do not know: a misspelt option that is silently ignored is worse than a 400.

mod exec;
mod fs;
mod image;
mod pool;
mod run;
mod session;
mod workspace;

pub use exec::{
    ApiExecRequest, ApiExecView, AttachedFrame, ChunkEvent, DetachedView, ExecDone, ExecReply, StreamErrorEvent,
};
pub use fs::{FsReadView, FsWriteRequest, MkdirRequest, MoveRequest, UploadedView};
pub use image::ImageView;
pub use pool::{PoolView, SetPoolRequest};
pub use run::{ApiRunRequest, RunDone, RunReply};
pub use session::{
    AcquireSource, CreateSessionRequest, NetworkMode, OkView, ResourcesRequest, ResourcesView, SessionStatus,
    SessionView, StatsView,
};
pub use workspace::{WorkspaceList, WorkspaceView};
