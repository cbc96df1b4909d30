// @cove/sdk: sandboxed Linux computers with a shell that remembers. Start with `Cove`.
export { Cove, type CoveOptions, type EmbeddedOptions, type SessionOptions } from "./cove.js";
export { Session, type ExecOptions, type RunOptions, type SpawnOptions, type StreamOptions } from "./session.js";
export { Command, RECONNECT_ATTEMPTS, type CommandEvent, type FollowOptions, type OnAbort, type WaitOptions } from "./command.js";
export { Tools, type JsonSchema, type ToolCallOptions, type ToolDefinition, type ToolOptions, type ToolSchema } from "./tools.js";
export type { ToolName } from "./generated-tools.js";
export type { ExecOutcome, ExecResult, OutputChunk } from "./result.js";
export { Files, WorkspaceFiles, type DownloadDirOptions, type FileData, type TransferProgress, type UploadDirOptions } from "./files.js";
export { Watch, type FileChangeEvent, type WatchOptions } from "./watch.js";
export { Ports, SessionNetwork, Shell, Shells } from "./session-parts.js";
export { Images, Keys, Pools, Secrets, Snapshots, Workspaces } from "./resources.js";
export type { Terminal, TerminalExit } from "./terminal.js";
export type { Forward } from "./node/forward.js";
export { REQUEST_ATTEMPTS, REQUEST_TIMEOUT_MS, STREAM_SILENCE_MS, type CallOptions } from "./transport.js";
export * from "./errors.js";
export type {
  ApiExecView as ExecView,
  CompactFacts,
  CreateKeyRequest,
  CreateSessionRequest,
  DaemonHealth,
  ErrorCode,
  FileKind,
  FileView,
  ForkRequest,
  ImageDetailsView,
  ImageView,
  InjectionSpec,
  KeyView,
  ListView,
  NetworkDecision,
  NetworkRule,
  NetworkRules,
  NetworkSpec,
  NetworkView,
  NewKeyView,
  OpenShellRequest,
  OutcomeKind,
  OutputView,
  PackagesView,
  PoolView,
  PortUrlView,
  PortView,
  PullProgress,
  RemovedImagesView,
  ResourcesRequest,
  SecretView,
  SessionStatus,
  SessionView,
  ShellView,
  SnapshotView,
  StatsView,
  Stream,
  StreamMode,
  ToolContentView,
  ToolReplyView,
  UpdateSessionRequest,
  WatchEnd,
  WorkspaceView,
} from "./generated.js";
