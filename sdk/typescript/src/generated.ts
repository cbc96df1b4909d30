// Made by scripts/generate.mjs from the daemon's /openapi.json. Do not edit: a test compares it with the running daemon.
// Names are in camelCase; src/names.ts converts them on the way to and from the wire.

/** Where a session's sandbox came from. */
export type AcquireSource = "pool" | "cold";

/** A command to run in a persistent shell. */
export interface ApiExecRequest {
  /** Bash source code of one or more lines. */
  cmd: string;
  /** The directory in which this command starts. The shell returns to its own directory afterwards, unless the command changes it. */
  cwd?: string;
  /** Reply at once with 202 and the id. The command keeps running, and its output is at `execs/{exec_id}`. */
  detach?: boolean;
  /** Environment variables for this command only. */
  env?: Record<string, string>;
  /** An id that the client chooses, to be able to reattach after a lost connection. A repeated id is refused with CONFLICT. */
  execId?: ExecId;
  /**
   * How many bytes of output the reply holds. From longer output, the reply has the first half and the last half of that many
   * bytes. Streams are not shortened.
   */
  maxOutputBytes?: number;
  /** The most tokens of a compact view, by estimate; at least 128. */
  maxTokens?: number;
  /**
   * How long the command may wait in the shell's queue behind another one, in milliseconds; 0 means not at all. After that it is
   * taken out of the queue and never runs, and the answer is SHELL_BUSY with `running_exec_id` in `details`. If it is absent,
   * the command waits as long as it takes.
   */
  queueTimeoutMs?: number;
  /**
   * Keep the terminal output of a `tty` command unchanged. By default, `output` has escape sequences removed and line ends
   * turned into `\n`. Output of the other stream modes is never changed.
   */
  rawOutput?: boolean;
  /** The shell that runs the command. The default is `main`. */
  shell?: ShellName;
  /** What the command reads on standard input, as text. With `streams: tty`, what is typed once the command has begun. */
  stdin?: string;
  /** The same as `stdin`, in base64. Give one of the two. */
  stdinBase64?: string;
  /** How standard output and standard error reach the client. */
  streams?: StreamMode;
  /**
   * Time limit in milliseconds, counted from the moment the command begins. If it is 0 or absent, the daemon's default applies;
   * a detached command has no limit then. `null` asks for no limit. The daemon's maximum, if it has one, takes the place of
   * "no limit", and a larger number is refused.
   */
  timeoutMs?: number | null;
  /** What the reply shows of the output. `compact` is for replies: not with a stream, `detach`, `raw_output` or `streams: split`. */
  view?: OutputView;
}

/** One of the recent execs and runs of a session. */
export interface ApiExecView {
  /** How it ended; absent before that. */
  done?: ExecDone;
  /** The id of the command or run. */
  execId: ExecId;
  /** The offset of the first byte that is still kept for replay. */
  firstOffset: number;
  /** How many bytes it has written so far. */
  outputBytes: number;
  /** The process id of a run's program inside the sandbox; absent for a command, and for a program that could not be started. */
  pid?: number;
  /** The shell that runs the command; absent for a run. */
  shell?: ShellName;
  /** Whether it waits, runs or has ended. */
  state: ExecState;
}

/** A program to run beside the shells. */
export interface ApiRunRequest {
  /** The program, looked up in `PATH`, and its arguments. */
  argv: string[];
  /** The directory in which the program starts. The default is `/workspace`. */
  cwd?: string;
  /** Reply at once with 202 and the id. The program keeps running, and its output is at `execs/{exec_id}`. */
  detach?: boolean;
  /** Environment variables for this program only. */
  env?: Record<string, string>;
  /** An id that the client chooses, to be able to reattach after a lost connection. A repeated id is refused with CONFLICT. */
  execId?: ExecId;
  /**
   * How many bytes of each stream the reply holds. From longer output, the reply has the first half and the last half of that
   * many bytes.
   */
  maxOutputBytes?: number;
  /** What the program reads on standard input, as text. */
  stdin?: string;
  /** The same as `stdin`, in base64. Give one of the two. */
  stdinBase64?: string;
  /** Keep standard input open: the program reads what `runs/{exec_id}/stdin` sends, until that closes it. Excludes `stdin`. */
  stdinOpen?: boolean;
  /**
   * Time limit in milliseconds, counted from the start of the program. If it is 0 or absent, the daemon's default applies;
   * a detached program has no limit then. `null` asks for no limit. The daemon's maximum, if it has one, takes the place of
   * "no limit", and a larger number is refused.
   */
  timeoutMs?: number | null;
}

/** One line of an NDJSON stream. It holds the same events as the SSE form, with the event's name in `event`. */
export type AttachedFrame = {
  /** Always "started". */
  event: "started";
  /** The id of the command. */
  execId: ExecId;
  /** The process id of a run's program inside the sandbox. */
  pid?: number;
} | {
  /** Always "queued". */
  event: "queued";
  /** The id of the command. */
  execId: ExecId;
  /** The id of the command that runs, or is about to. */
  runningExecId: ExecId;
} | {
  /** Always "running". */
  event: "running";
  /** The id of the command. */
  execId: ExecId;
} | ChunkEvent & {
  /** Always "chunk". */
  event: "chunk";
} | {
  /** How many bytes are missing. */
  bytes: number;
  /** Always "gap". */
  event: "gap";
  /** The offset of the first missing byte. */
  offset: number;
} | {
  /** Always "awaiting_input". */
  event: "awaiting_input";
} | ExecDone & {
  /** Always "done". */
  event: "done";
} | StreamErrorEvent & {
  /** Always "error". */
  event: "error";
};

/** What happened to a file or directory. */
export type ChangeKind = "created" | "modified" | "deleted" | "moved";

/** A piece of output: the data of a stream's `chunk` event. */
export interface ChunkEvent {
  /** The output as text. Bytes that are not UTF-8 appear as U+FFFD, and `chunk_base64` has the exact bytes. */
  chunk: string;
  /** The exact bytes, present only if `chunk` differs from them. */
  chunkBase64?: string;
  /**
   * The offset of the first byte. To reattach after this chunk, use `offset` plus the length in bytes, which is also the event's
   * `id`.
   */
  offset: number;
  /** The stream that the bytes came from. */
  stream: Stream;
  /**
   * When the command printed the bytes: Unix time in milliseconds, of the moment in which they were read from it. Output that is
   * read again later has the same time.
   */
  timestamp: number;
}

/** A request to make an image from what a session has changed of its root. */
export interface CommitImageRequest {
  /** The name of the new image. */
  image: string;
  /** The session. It has a writable root. */
  sessionId: SessionId;
}

/** What a compact view left out, and where the whole output is. */
export interface CompactFacts {
  /** Whether `max_tokens` or `max_output_bytes` left out lines that the view would have kept. */
  isCut: boolean;
  /** How many bytes the command printed. */
  originalBytes: number;
  /** How many tokens that is, by estimate. */
  originalTokens: number;
  /** How many tokens `output` has, by estimate. */
  tokens: number;
  /** The path of the whole output. The last 4 MiB of it are kept, for the last 1,000 commands. */
  wholeOutput: string;
}

/** One line of the answer to a create that pulls its image, as JSON lines. */
export type CreateFrame = PullProgress & {
  /** Always "progress". */
  event: "progress";
} | SessionView & {
  /** Always "done". */
  event: "done";
} | ErrorBody & {
  /** Always "error". */
  event: "error";
};

/** A key to create. */
export interface CreateKeyRequest {
  /** How much memory all sessions of the key may have together, in MiB. Without it, only the daemon's own limits apply. */
  maxMemoryMb?: number;
  /**
   * The most that sessions of the key may reach, as a preset or rules. It replaces the daemon's maximum. Without it, a key with the
   * role `user` has the daemon's maximum, and one with the role `admin` has none.
   */
  maxNetwork?: NetworkSpec;
  /** How many sessions the key may have at a time. Without it, only the daemon's own limits apply. */
  maxSessions?: number;
  /** The name of the key. Sessions and workspaces that are created with the key have it as their `owner`. */
  name: KeyName;
  /** What the key may do. The default is `user`. */
  role?: KeyRole;
}

/** A session to create. Every field is optional. */
export interface CreateSessionRequest {
  /** Environment variables for every shell and run of the session. */
  env?: Record<string, string>;
  /**
   * The session is paused after this many seconds without activity, until a request needs its sandbox. 0 means never. The default
   * is the daemon's setting.
   */
  idlePauseSeconds?: number;
  /** The same as `ttl_seconds`. If both are given, the shorter one applies. */
  idleSeconds?: number;
  /** The name of an image. The default is the daemon's default image. */
  image?: string;
  /**
   * Headers that the daemon adds to requests to certain hosts, with values that the sandbox never sees. An empty list prepares the
   * session for a later `PUT …/network` with some.
   */
  inject?: InjectionSpec[];
  /** Labels of your own, by which sessions can be listed. */
  labels?: Record<string, string>;
  /** A name by which people can find the session. No other session of yours may have it until this one has ended. */
  name?: SessionName;
  /** What the session may reach over the network. The default is the daemon's setting, normally `none`. */
  network?: NetworkSpec;
  /** What the session's programs may do beyond the usual. The daemon's operator decides which profiles can be asked for. */
  profiles?: Profile[];
  /** Limits on processor, memory, processes and disk. */
  resources?: ResourcesRequest;
  /** The runtime that makes the sandbox. The default is the daemon's default runtime. */
  runtime?: RuntimeName;
  /**
   * A snapshot to start from. The session has the files and the shells of the snapshot. Image, runtime and `writable_root` are those
   * of the snapshot, and so are resources that are not given.
   */
  snapshot?: SnapshotId;
  /** The session expires after this many seconds without activity. Each request starts the time again. */
  ttlSeconds?: number;
  /** The user that commands run as. With `root`, the root file system is writable unless `writable_root` is false. */
  user?: SessionUser;
  /** A workspace, a named directory that outlives the session, to mount at `/workspace`. It is created if it does not exist. */
  workspaceId?: WorkspaceId;
  /**
   * Make the root file system writable. What is written there is deleted with the session. The default is false, or true if
   * `user` is `root`.
   */
  writableRoot?: boolean;
}

/** A snapshot to make. */
export interface CreateSnapshotRequest {
  /** A name for people, of at most 128 bytes. Two snapshots may have the same. */
  name?: string;
}

/** The health of the daemon. */
export interface DaemonHealth {
  /** Always `ok`. */
  status: string;
  /** The daemon's version. */
  version: string;
}

/** The reply to a detached command. */
export interface DetachedView {
  /** The id at which to find the command: `execs/{exec_id}`. */
  execId: ExecId;
}

/** The body of every error response. */
export interface ErrorBody {
  /** Facts for programs, such as the limit that was reached. The fields depend on `error_code`. */
  details?: unknown;
  /** The kind of error. */
  errorCode: ErrorCode;
  /** What is wrong and, if the caller can do something about it, what to do. */
  message: string;
}

/** A stable code for each kind of error. Programs branch on it; each code has one HTTP status. */
export type ErrorCode = "INVALID_REQUEST" | "INVALID_IMAGE" | "UNAUTHORIZED" | "FORBIDDEN" | "NOT_FOUND" | "METHOD_NOT_ALLOWED" | "SESSION_NOT_FOUND" | "SHELL_NOT_FOUND" | "FILE_NOT_FOUND" | "EXEC_NOT_FOUND" | "WORKSPACE_NOT_FOUND" | "SHELL_BUSY" | "CONFLICT" | "SESSION_EXPIRED" | "TOO_LARGE" | "LIMIT_REACHED" | "SANDBOX_LOST" | "PORT_CLOSED" | "INTERNAL_ERROR";

/** How a command ended: the data of a stream's `done` event, and a plain reply without its output. */
export interface ExecDone {
  /** Whether a foreground program was waiting for input at the terminal when the command ended. */
  awaitingInput: boolean;
  /** The shell's directory after the command. */
  cwd: string;
  /** How long the command ran, in milliseconds. */
  durationMs: number;
  /** The id of the command. */
  execId: ExecId;
  /** The exit status as bash shows it in `$?`: 128+n after signal n, 124 after a timeout, 126 or 127 if nothing could be run. */
  exitCode: number;
  /** The way in which the command ended. */
  kind: OutcomeKind;
  /** What programs of the session tried to reach while the command ran and were not allowed to, as rules that would allow it. */
  networkDenied?: string[];
  /**
   * Whether the kernel killed a process of the sandbox because memory ran out: while this ran, also if it went on itself, or
   * since the command before it.
   */
  oomKilled: boolean;
  /** How many bytes the command wrote, including those that the reply leaves out. */
  outputBytes: number;
  /** The reason, if `kind` is `never_ran` or `lost`. */
  reason?: string;
  /** Whether the shell died or was replaced during or before this command. Its state was restored. */
  shellRestarted: boolean;
  /** The signal that killed the shell, if `kind` is `signaled`. */
  signal?: number;
  /** Whether the command reached its time limit. */
  timedOut: boolean;
  /** Whether the client got less than the whole output. */
  truncated: boolean;
}

/** The id of a command in a shell or of a run. The client may choose it, to be able to reattach; otherwise the runner makes one. */
export type ExecId = string;

/** The reply to a command that has ended. */
export interface ExecReply {
  /** Whether a foreground program was waiting for input at the terminal when the command ended. */
  awaitingInput: boolean;
  /** What the view left out, with `view: compact`. */
  compact?: CompactFacts;
  /** The shell's directory after the command. */
  cwd: string;
  /** How long the command ran, in milliseconds. */
  durationMs: number;
  /** The id of the command. */
  execId: ExecId;
  /** The exit status as bash shows it in `$?`: 128+n after signal n, 124 after a timeout, 126 or 127 if nothing could be run. */
  exitCode: number;
  /** The way in which the command ended. */
  kind: OutcomeKind;
  /** What programs of the session tried to reach while the command ran and were not allowed to, as rules that would allow it. */
  networkDenied?: string[];
  /** How many bytes `output` leaves out. */
  omittedBytes?: number;
  /**
   * Whether the kernel killed a process of the sandbox because memory ran out: while this ran, also if it went on itself, or
   * since the command before it.
   */
  oomKilled: boolean;
  /**
   * The output of all streams in order. If `truncated` is true, it is the first and the last part, with a line between them
   * that says how many bytes are left out. Bytes that are not UTF-8 appear as U+FFFD, and `output_base64` has the exact bytes.
   */
  output: string;
  /** The exact bytes of `output`, present only if `output` differs from them. */
  outputBase64?: string;
  /** How many bytes the command wrote, including those that the reply leaves out. */
  outputBytes: number;
  /** The reason, if `kind` is `never_ran` or `lost`. */
  reason?: string;
  /** Whether the shell died or was replaced during or before this command. Its state was restored. */
  shellRestarted: boolean;
  /** The signal that killed the shell, if `kind` is `signaled`. */
  signal?: number;
  /** Standard error alone, with `streams: split`. */
  stderr?: string;
  /** Standard output alone, with `streams: split`. */
  stdout?: string;
  /** Whether the command reached its time limit. */
  timedOut: boolean;
  /** Whether the client got less than the whole output. */
  truncated: boolean;
}

/** The stage of a command or run. */
export type ExecState = "queued" | "running" | "ended";

/** One change. */
export interface FileChange {
  /** The path that a moved file had before. */
  from?: string;
  /** The exact bytes of `from`, present only if they are not UTF-8. */
  fromBase64?: string;
  /** Whether it is a directory. A symbolic link is none. */
  isDir: boolean;
  /** What happened. */
  kind: ChangeKind;
  /** The path in the form that other calls take: it begins with the path that the watch was asked for. */
  path: string;
  /** The exact bytes of the path, present only if they are not UTF-8. */
  pathBase64?: string;
}

/** The kind of a file. */
export type FileKind = "file" | "directory" | "symlink" | "fifo" | "socket" | "block_device" | "char_device";

/** A file or directory. */
export interface FileView {
  /** The owner's group id in the sandbox. */
  gid: number;
  /** The kind of file. */
  kind: FileKind;
  /** The permission bits as a decimal number: 493 is 0o755. */
  mode: number;
  /** When the content was last changed: Unix time in milliseconds. */
  mtimeMs: number;
  /** The path: in a listing, relative to the listed directory; for a single file, as it was asked for. */
  path: string;
  /** The exact bytes of the path, present only if they are not UTF-8. */
  pathBase64?: string;
  /** The size in bytes. */
  size: number;
  /** Where a symbolic link points to. */
  symlinkTarget?: string;
  /** The owner's user id in the sandbox. */
  uid: number;
}

/** Copies to make of a session. */
export interface ForkRequest {
  /** How many copies to make, 1 to 100. The default is 1. */
  count?: number;
  /**
   * The workspace that the copies have at `/workspace`. The default is the workspace of the session, if it has one: it is not
   * copied, so all of them use the same files.
   */
  workspaceId?: WorkspaceId;
}

/** The copies of a session. */
export interface ForkView {
  /** The new sessions. */
  sessions: SessionView[];
}

/** A small file's content. */
export interface FsReadView {
  /** The content in base64. */
  contentBase64: string;
  /** The path as it was asked for. */
  path: string;
  /** Whether the file is longer than `max_bytes`. */
  truncated: boolean;
}

/** A small file to write. */
export interface FsWriteRequest {
  /** The content in base64. Give either this or `text`. */
  contentBase64?: string;
  /** The file's path: absolute, or relative to `/workspace`. */
  path: string;
  /** The content as text. An empty string makes an empty file. */
  text?: string;
}

/** An image of the `local` runtime that was pulled, imported or committed. */
export interface ImageDetailsView {
  /** The size of all files in it. */
  bytes: number;
  /** The session and the image that it was made from, if it was committed. */
  committedFrom?: string;
  /** When the image was made, as it says itself. */
  created?: string;
  /** The digest of the image's manifest, if it came from a registry. */
  digest?: string;
  /** The variables that shells and runs get from it, as `NAME=VALUE`. */
  env: string[];
  /** The digests of its layers, the lowest first. Empty for a root file system that was imported. */
  layers: string[];
  /** The name to give as `image` in a create. */
  name: string;
  /** How much of that is in layers that another image has too. */
  sharedBytes: number;
  /** The user that it names. Commands run as that one, unless it is root or not in the image. */
  user?: string;
  /** The directory in which shells and runs begin, if it names one. */
  workingDir?: string;
}

/** An image. */
export interface ImageView {
  /** Whether a create without `image` uses this one. */
  default: boolean;
  /** The name to give as `image` in a create. */
  name: string;
  /** The runtime that has this image. */
  runtime: RuntimeName;
  /** Where the image comes from: `host` for the host's own system, otherwise an imported root file system or a container image. */
  source: string;
}

/** A header that the daemon adds to the requests of a session to one host. The sandbox never sees its value. */
export interface InjectionSpec {
  /** The value of the header, with `{}` for the secret. The default is the secret alone; an example is `Bearer {}`. */
  format?: string;
  /** The name of the header. Values that programs send under this name are replaced. */
  header: string;
  /** The host, as in `https://HOST/`: a name, with a port if that is not 443. */
  host: string;
  /** Where the value comes from: `secret:NAME`. */
  valueFrom: string;
}

/** Bytes to type at a shell's terminal. */
export interface InputRequest {
  /** The input as text. */
  data?: string;
  /** The input in base64. Give one of the two. */
  dataBase64?: string;
  /** The shell. The default is `main`. */
  shell?: ShellName;
}

/** All keys. */
export interface KeyList {
  /** The keys: the first key, then the others by name. */
  keys: KeyView[];
}

/** The name of an API key. It is the owner of the sessions and workspaces that are created with the key. */
export type KeyName = string;

/** What a key may do. */
export type KeyRole = "admin" | "user";

/** A key, without its secret. */
export interface KeyView {
  /**
   * When the key was created: RFC 3339 in UTC with milliseconds. Absent for the first key, which the daemon's configuration
   * or its data directory has.
   */
  createdAt?: string;
  /** How much memory all sessions of the key may have together, in MiB; absent if only the daemon's own limits apply. */
  maxMemoryMb?: number;
  /** The most that sessions of the key may reach; absent if it has no maximum of its own. */
  maxNetwork?: NetworkSpec;
  /** How many sessions the key may have at a time; absent if only the daemon's own limits apply. */
  maxSessions?: number;
  /** The memory limits of these sessions together, in MiB. */
  memoryMb: number;
  /** The name of the key. */
  name: KeyName;
  /** What the key may do. */
  role: KeyRole;
  /** How many sessions the key has now. */
  sessions: number;
}

/** A directory listing. */
export interface ListView {
  /** The entries, sorted by the bytes of their paths. */
  entries: FileView[];
  /** Whether the listing is incomplete: the directory has too many entries, or a part of it cannot be read. */
  truncated: boolean;
}

/** A directory to create. */
export interface MkdirRequest {
  /** Also create missing parent directories, and accept a directory that exists, as `mkdir -p` does. */
  parents?: boolean;
  /** The directory's path: absolute, or relative to `/workspace`. */
  path: string;
}

/** A file or directory to move. */
export interface MoveRequest {
  /** The path that it has now: absolute, or relative to `/workspace`. */
  from: string;
  /** Replace what is at `to`. */
  overwrite?: boolean;
  /** The path that it gets. */
  to: string;
}

/** One decision about a session's network. */
export interface NetworkDecision {
  /** The address that was dialled. */
  address?: string;
  /** How many bytes the program received; present when a connection has closed. */
  bytesReceived?: number;
  /** How many bytes the program sent; present when a connection has closed. */
  bytesSent?: number;
  /** The name, if it is known. */
  host?: string;
  /** Whether the daemon added a header to the requests of this connection. */
  injected?: boolean;
  /** The port that was dialled. */
  port?: number;
  /** Why not, as a word for programs. */
  reason?: string;
  /** Numbers the decisions of a session, from 1. With gaps, decisions are missing that are no longer kept. */
  sequence: number;
  /** When it was made, or when the connection closed: Unix time in milliseconds. */
  timestamp: number;
  /** Whether it was allowed. */
  verdict: NetworkVerdict;
  /** The rule that would allow it. */
  wanted?: string;
  /** What a program wanted. */
  wish: NetworkWish;
}

/** The last decisions about a session's network. */
export interface NetworkLogView {
  /** The decisions, the oldest first. */
  decisions: NetworkDecision[];
}

/** One rule, as text or with its parts. */
export type NetworkRule = string | NetworkRuleParts;

/** A rule with several ports, or for a name that has private addresses. */
export interface NetworkRuleParts {
  /** A name, a name with `*.` before it, or an address range. */
  host: string;
  /** The ports. The default is 80 and 443. */
  ports?: number[];
  /** Whether the name may have private addresses, as a company's mirror does. Only for keys with the role `admin`. */
  private?: boolean;
}

/** Rules for a session's network. A deny rule wins over every allow rule. */
export interface NetworkRules {
  /** What the session may reach. */
  allow?: NetworkRule[];
  /** What the session may not reach, in spite of `allow`. */
  deny?: NetworkRule[];
  /** Presets whose rules count too. */
  presets?: string[];
}

/**
 * What a session may reach: the name of a preset, or rules.
 *
 * Presets that always exist: `none` (loopback only), `packages` (the registries that this host's package managers use), `learn` (every
 * public address; `cove network learn` prints what was used) and `full` (every public address). The daemon's operator may add others.
 */
export type NetworkSpec = string | NetworkRules;

/** Whether something was allowed. */
export type NetworkVerdict = "allowed" | "denied" | "failed" | "cut";

/** A session's network now. */
export interface NetworkView {
  /** What is allowed, as rules. */
  allow: NetworkRule[];
  /** How many bytes programs have received. */
  bytesReceived: number;
  /** How many bytes programs have sent. */
  bytesSent: number;
  /** How many connections are open. */
  connections: number;
  /** What is denied in spite of that, as rules. */
  deny: NetworkRule[];
  /** The headers that the daemon adds, without their values. */
  inject?: InjectionSpec[];
  /** Whether programs in the sandbox have a way to the daemon at all. `false` on a host that cannot open one: then nothing is reachable. */
  isOpen: boolean;
  /**
   * The most that the session may reach, by the key that chose its network; absent if there is no maximum. What is reached is what
   * both this and the rules allow.
   */
  max?: NetworkSpec;
  /** What was asked for. */
  network: NetworkSpec;
  /** The proxy that programs in the sandbox have to use, where they cannot simply dial. Their variables lead to it. */
  proxy?: string;
  /**
   * What was reached so far, as rules that would allow it: the allowlist of a session with the network `learn`. A change to `learn`
   * begins a new list.
   */
  used: string[];
}

/** What a program wanted of the network. */
export type NetworkWish = "resolve" | "connect";

/** A new key with its secret. The daemon stores only a hash of the secret, so this is the only answer that contains it. */
export interface NewKeyView {
  /** The key. */
  key: KeyView;
  /** The secret to send as `Authorization: Bearer SECRET`. */
  secret: string;
}

/** The reply to a call that has nothing else to say. */
export interface OkView {
  /** Always true: a failure is an error body. */
  ok: boolean;
}

/** A shell to open. */
export interface OpenShellRequest {
  /** The width of its terminal in characters. */
  cols?: number;
  /** The directory in which the shell starts. */
  cwd?: string;
  /** Environment variables for this shell. */
  env?: Record<string, string>;
  /** A shell whose state the new one copies: directory, variables, functions, aliases, options. */
  from?: ShellName;
  /** The kind of shell. */
  kind?: ShellKind;
  /** The shell's name. If it is absent, the runner makes one. */
  name?: ShellName;
  /** The height of its terminal in lines. */
  rows?: number;
}

/** The way in which a command ended. There are exactly these five, and callers treat each differently. */
export type OutcomeKind = "exited" | "signaled" | "timed_out" | "never_ran" | "lost";

/** What a reply shows of the output. */
export type OutputView = "full" | "compact";

/** The registries that this host's package managers use: what the network `packages` allows. */
export interface PackagesView {
  /** The hosts, each with the tool that uses it. */
  found: RegistryView[];
  /** What could not be found out, and notes. */
  problems: RegistryProblem[];
  /** The variables that a session with the network `packages` gets, so that its package managers use the same registries. */
  variables: RegistryVariable[];
}

/** A pool and how it is used. */
export interface PoolView {
  /** Why the last start of a sandbox for the pool failed; absent once a start works again. */
  failure?: string;
  /** How many creates got a sandbox from the pool, since the pool was made. */
  hits: number;
  /** How many are ready now. */
  idle: number;
  /** The image of the pool's sandboxes. */
  image: string;
  /** How many creates the pool could have served but had no sandbox ready for, since the pool was made. */
  misses: number;
  /** The runtime that makes them. */
  runtime: RuntimeName;
  /** How many sandboxes the pool keeps ready. */
  size: number;
  /** How many are being started. */
  starting: number;
}

/** The listening sockets of a sandbox, by port. */
export interface PortList {
  /** The listening sockets, sorted by port and address. */
  ports: PortView[];
}

/** The link to make. */
export interface PortUrlRequest {
  /** How long the link is good, in seconds. The default is one hour. */
  ttlSeconds?: number;
}

/** A link to one port of one session. Whoever has it can use that port until it expires. */
export interface PortUrlView {
  /** When the link expires, as RFC 3339 in UTC. */
  expiresAt: string;
  /** The address to open, with its token. */
  url: string;
}

/** One listening TCP socket. */
export interface PortView {
  /** The address that the program bound, such as `0.0.0.0`, `127.0.0.1` or `::1`. */
  address: string;
  /** The process that listens, if the kernel tells. */
  pid?: number;
  /** The number of the port. */
  port: number;
  /** The name of its program, if the kernel tells. */
  program?: string;
  /** Whether the port can be connected to: the address includes the sandbox's loopback, `127.0.0.1` or `::1`. */
  reachable: boolean;
}

/** A set of system calls that a session has to ask for. All of them reach only processes of the session itself. */
export type Profile = "ptrace" | "debug";

/** One line of the answer of a pull or a commit as JSON lines. */
export type PullFrame = PullProgress & {
  /** Always "progress". */
  event: "progress";
} | ImageDetailsView & {
  /** Always "done". */
  event: "done";
} | ErrorBody & {
  /** Always "error". */
  event: "error";
};

/** A request to pull an image from a registry. */
export interface PullImageRequest {
  /** Whether to pull only what a create would pull: an image that is not here, if the daemon pulls unasked. */
  ifMissing?: boolean;
  /** The image, as `[HOST[:PORT]/]NAME[:TAG][@DIGEST]`. */
  image: string;
}

/** How far a pull or a commit is. */
export interface PullProgress {
  /** How many bytes of the layers are here. */
  bytes: number;
  /** How many layers have to be downloaded. */
  layers: number;
  /** How many of them are here. */
  layersDone: number;
  /**
   * What a pull does: `resolving`, `waiting` for another pull of the same layer, `downloading`, or `finishing`. What a commit
   * does: `packing`.
   */
  phase: string;
  /** How many bytes they have together. 0 for a commit: it is not known before. */
  totalBytes: number;
}

/** Something about a package manager that could not be found out, or a note. */
export interface RegistryProblem {
  /** What it is about. */
  message: string;
  /** The package manager. */
  tool: string;
}

/** A variable that leads a package manager to a registry. It holds no credentials. */
export interface RegistryVariable {
  /** The name of the variable. */
  name: string;
  /** The package manager. */
  tool: string;
  /** Its value. */
  value: string;
}

/** A host that a package manager downloads from. */
export interface RegistryView {
  /** Where the package manager has it from. */
  because: string;
  /** The host. */
  host: string;
  /** Whether the host has private addresses here, as a company's mirror does. */
  isPrivate: boolean;
  /** The ports. */
  ports: number[];
  /** The package manager. */
  tool: string;
}

/** What a prune or a removal freed. */
export interface RemovedImagesView {
  /** How many bytes all of them had. */
  bytes: number;
  /** How many layers were removed. */
  layers: number;
  /** How many leftovers of interrupted pulls were removed. */
  leftovers: number;
}

/** A new size for a shell's terminal. */
export interface ResizeRequest {
  /** The width in characters. */
  cols: number;
  /** The height in lines. */
  rows: number;
  /** The shell. The default is `main`. */
  shell?: ShellName;
}

/** The limits of one session. An absent field means the daemon's default. */
export interface ResourcesRequest {
  /** Processors; fractions are allowed. */
  cpus?: number;
  /** Disk in MiB. */
  diskMb?: number;
  /** Memory in MiB. */
  memoryMb?: number;
  /** Processes and threads. */
  pids?: number;
}

/** The limits that a session has. */
export interface ResourcesView {
  /** Processors. */
  cpus: number;
  /** Disk in MiB. */
  diskMb: number;
  /** Memory in MiB. */
  memoryMb: number;
  /** Processes and threads. */
  pids: number;
}

/** The reply to a run that has ended. */
export interface RunReply {
  /** How long the program ran, in milliseconds. */
  durationMs: number;
  /** The id of the run. */
  execId: ExecId;
  /** The exit status: 128+n after signal n, 124 after a timeout, 126 or 127 if the program could not be run. */
  exitCode: number;
  /** The way in which the program ended. */
  kind: OutcomeKind;
  /** What programs of the session tried to reach while this ran and were not allowed to, as rules that would allow it. */
  networkDenied?: string[];
  /**
   * Whether the kernel killed a process of the sandbox because memory ran out: while this ran, also if it went on itself, or
   * since the command before it.
   */
  oomKilled: boolean;
  /** How many bytes the program wrote, including those that the reply leaves out. */
  outputBytes: number;
  /** The reason, if `kind` is `never_ran` or `lost`. */
  reason?: string;
  /** The signal that killed the program, if `kind` is `signaled`. */
  signal?: number;
  /** Standard error. Bytes that are not UTF-8 appear as U+FFFD, and `stderr_base64` has the exact bytes. */
  stderr: string;
  /** The exact bytes of `stderr`, present only if `stderr` differs from them. */
  stderrBase64?: string;
  /** Standard output. Bytes that are not UTF-8 appear as U+FFFD, and `stdout_base64` has the exact bytes. */
  stdout: string;
  /** The exact bytes of `stdout`, present only if `stdout` differs from them. */
  stdoutBase64?: string;
  /** Whether the program reached its time limit. */
  timedOut: boolean;
  /** Whether the client got less than the whole output. */
  truncated: boolean;
}

/** The name of a runtime, the part that makes sandboxes: `local` or `docker`. */
export type RuntimeName = string;

/** The secrets of a caller; for an admin, those of everybody. */
export interface SecretList {
  /** The secrets, by owner and name. */
  secrets: SecretView[];
}

/** The name of a secret. Each owner has names of its own. */
export type SecretName = string;

/** The text of a secret. It does not show in logs, and an error about a wrong value does not repeat it. */
export type SecretText = string;

/** A secret, without its value. */
export interface SecretView {
  /** The hosts that the secret may be sent to; empty means every host. */
  hosts: string[];
  /** The name of the secret. */
  name: SecretName;
  /** The key that the secret belongs to. */
  owner: KeyName;
  /** When the value was set: RFC 3339 in UTC with milliseconds. */
  updatedAt: string;
}

/** The id of a session. The orchestrator makes it; an example is `7183cb80-d6c`. */
export type SessionId = string;

/** The name of a session, besides its id. The client chooses it; no two sessions of one owner have the same name at a time. */
export type SessionName = string;

/** The stage of a session's life. */
export type SessionStatus = "creating" | "running" | "paused" | "stopped" | "pool_idle" | "destroying" | "destroyed" | "expired" | "crashed";

/** The user that the commands of a session run as. */
export type SessionUser = "default" | "root";

/** A session. */
export interface SessionView {
  /** Where its sandbox came from. */
  acquireSource: AcquireSource;
  /** When it was created. All times are RFC 3339 in UTC with milliseconds. */
  createdAt: string;
  /** The directory of the shell `main` after the last command that ended there. */
  cwd: string;
  /** When it expires, if there is no activity until then. A stopped session does not expire; its time begins when it is started. */
  expiresAt: string;
  /** The session's id. */
  id: SessionId;
  /** The image that it was created from. */
  image: string;
  /** Its labels. */
  labels: Record<string, string>;
  /** When it was last used. */
  lastActivity: string;
  /** The name that it was created with. */
  name?: SessionName;
  /** The network that its sandbox has. */
  network: NetworkSpec;
  /** The name of the key that it was created with. */
  owner: KeyName;
  /** The profiles that it was created with. */
  profiles?: Profile[];
  /** Why it ended, if `status` is `crashed`. */
  reason?: string;
  /** Its limits. */
  resources: ResourcesView;
  /** The runtime that made its sandbox. */
  runtime: RuntimeName;
  /** The stage of its life. */
  status: SessionStatus;
  /** The user that its commands run as. */
  user: SessionUser;
  /** The workspace that is mounted at `/workspace`. */
  workspaceId?: WorkspaceId;
  /** Whether its root file system is writable. */
  writableRoot: boolean;
}

/** A change of a session's network. */
export interface SetNetworkRequest {
  /**
   * The headers that the daemon adds from now on. Without it, the session keeps those that it has; an empty list removes all. Only a
   * session that was created with `inject` can have any.
   */
  inject?: InjectionSpec[];
  /** What the session may reach from now on. Connections that it forbids are cut at once. */
  network: NetworkSpec;
}

/** The size of a pool. */
export interface SetPoolRequest {
  /** The runtime that makes the sandboxes. The default is the daemon's default runtime. */
  runtime?: RuntimeName;
  /** How many sandboxes to keep ready. 0 removes the pool. */
  size: number;
}

/** A secret to store, or to replace. */
export interface SetSecretRequest {
  /** The hosts that the secret may be sent to, each a name. With none, every host. */
  hosts?: string[];
  /** The value: what a header can carry, at most 8,192 bytes. No answer contains it. */
  value: SecretText;
}

/** The kind of a shell. */
export type ShellKind = "exec" | "terminal";

/** The name of a shell in a session. The shell `main` exists from the start. */
export type ShellName = string;

/** The stage of a shell. */
export type ShellState = "starting" | "idle" | "busy" | "down";

/** A shell. */
export interface ShellView {
  /** The width of its terminal in characters. */
  cols: number;
  /** Its directory after the last command that ended. */
  cwd: string;
  /** The command that runs now. */
  execId?: ExecId;
  /** The kind of shell. */
  kind: ShellKind;
  /** The shell's name. */
  name: ShellName;
  /** The process id of its bash in the sandbox; absent while no bash runs. */
  pid?: number;
  /** How many commands wait. */
  queued: number;
  /** How often its bash died or was replaced. */
  restarts: number;
  /** The height of its terminal in lines. */
  rows: number;
  /** Its stage. */
  state: ShellState;
}

/** A signal to the foreground program of a shell, or to one command or run. Without `shell` and `exec_id`, the shell is `main`. */
export interface SignalRequest {
  /** The command or run that gets the signal. */
  execId?: ExecId;
  /** The shell whose foreground program gets the signal. */
  shell?: ShellName;
  /** The signal's name or number, such as `INT`, `SIGINT` or `2`. */
  signal: string;
}

/** The id of a snapshot. The orchestrator makes it; an example is `snap-7183cb80d6c1`. */
export type SnapshotId = string;

/** All snapshots that the caller may see, the oldest first. */
export interface SnapshotList {
  /** The snapshots. */
  snapshots: SnapshotView[];
}

/** A snapshot. */
export interface SnapshotView {
  /** When it was made. */
  createdAt: string;
  /** Bytes on its disk, as if it shared none with others. */
  diskBytes: number;
  /** The snapshot's id. */
  id: SnapshotId;
  /** The image of that session. */
  image: string;
  /** The name that it was given. */
  name?: string;
  /** The name of the key that owns it: the owner of the session. */
  owner: KeyName;
  /** The runtime of that session. */
  runtime: RuntimeName;
  /** The session that it was made of, which may be gone. */
  sessionId: SessionId;
  /** The shells whose state it has. */
  shells: ShellName[];
  /** The user that the commands of that session run as, to whom its files belong. */
  user: SessionUser;
  /** Whether the root file system of that session was writable, and so is part of the snapshot. */
  writableRoot: boolean;
}

/** What a session uses now. */
export interface StatsView {
  /** Processor time since the sandbox started, in microseconds. */
  cpuUsageUsec: number;
  /** Bytes on the sandbox's disk; absent if the runtime cannot tell. */
  diskBytes?: number;
  /** Memory in bytes. */
  memoryBytes: number;
  /** The memory limit in bytes; absent if none is enforced. */
  memoryLimit?: number;
  /** Processes and threads. */
  pids: number;
}

/** What a request to a run's open standard input did. */
export interface StdinView {
  /** How many bytes of this request were written to the program's standard input. */
  bytes: number;
  /** Whether standard input is closed now. */
  closed: boolean;
}

/** The stream that output came from. */
export type Stream = "merged" | "stdout" | "stderr" | "tty";

/** The data of a stream's `error` event: the stream cannot continue. The command may still be running. */
export interface StreamErrorEvent {
  /** Facts for programs, as in the body of an error. The fields depend on `error_code`. */
  details?: unknown;
  /** What went wrong. */
  error: string;
  /** The kind of error. */
  errorCode: ErrorCode;
}

/** How a command's output reaches the client, and where its standard input comes from. */
export type StreamMode = "merged" | "split" | "tty";

/** A part of a tool's answer. */
export type ToolContentView = {
  /** The text. */
  text: string;
  /** Always "text". */
  type: "text";
} | {
  /** Its bytes in base64. */
  dataBase64: string;
  /** Its type, such as `image/png`. */
  mediaType: string;
  /** Always "image". */
  type: "image";
};

/** The answer of a tool. */
export interface ToolReplyView {
  /** What the model reads. */
  content: ToolContentView[];
  /** Whether the model should do something else: its call could not be carried out, or its command failed. */
  isError: boolean;
  /** The session that later calls should use, if the tool has made another one. */
  sessionId?: SessionId;
  /** The same as values, for programs. An error has none. */
  structured?: unknown;
}

/** Changes to a session. An absent field stays as it is. */
export interface UpdateSessionRequest {
  /** The same as `ttl_seconds`. If both are given, the shorter one applies. */
  idleSeconds?: number;
  /** Labels that take the place of all earlier ones. */
  labels?: Record<string, string>;
  /** The session expires after this many seconds without activity. The time starts again with this request. */
  ttlSeconds?: number;
}

/** The reply to a multipart upload. */
export interface UploadedView {
  /** Always true: a failure is an error body. */
  ok: boolean;
  /** The paths of the files that were written. */
  paths: string[];
}

/** Why a watch is over although nothing failed. */
export type WatchEnd = "deleted" | "moved" | "unmounted";

/** One line of a watch. */
export type WatchFrame = {
  /** Always "ready". */
  event: "ready";
  /** Whether a directory below is not watched, because it is too deep or the sandbox user may not read it. */
  truncated: boolean;
} | FileChange & {
  /** Always "change". */
  event: "change";
} | {
  /** Always "overflow". */
  event: "overflow";
} | {
  /** Always "ended". */
  event: "ended";
  /** What became of it. */
  reason: WatchEnd;
} | ErrorBody & {
  /** Always "error". */
  event: "error";
};

/** The name of a workspace, a directory that outlives sessions. The client chooses it. */
export type WorkspaceId = string;

/** What a workspace is on the host. */
export type WorkspaceKind = "directory" | "disk";

/** All workspaces. */
export interface WorkspaceList {
  /** The workspaces, ordered by name. */
  workspaces: WorkspaceView[];
}

/** A workspace. */
export interface WorkspaceView {
  /** When it was created: RFC 3339 in UTC with milliseconds. */
  createdAt: string;
  /** The name to give as `workspace_id` in a create. */
  id: WorkspaceId;
  /** What it is on the host. It stays what it was made as. */
  kind: WorkspaceKind;
  /** How many bytes it may hold, from the next session on; absent if nothing limits it. */
  limitBytes?: number;
  /** The name of the key whose workspace it is. Each key has names of its own: two keys can have a workspace `w` each. */
  owner: KeyName;
  /** The sessions that have it mounted now. */
  sessions: SessionId[];
  /** Bytes on the disk; absent if there are too many files to count in one listing, or if the workspace cannot be reached. */
  sizeBytes?: number;
}

/** The reply to a write. */
export interface WroteView {
  /** How many bytes were written. */
  bytes: number;
}

/** What each operation takes and answers. `undefined` stands for none, or for bytes and events. */
export interface Operations {
  /** GET /healthz: Check that the daemon answers requests */
  getHealth: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: undefined;
    answer: DaemonHealth;
  };
  /** DELETE /mcp: End an MCP session, and the session that was made for it */
  endMcpSession: {
    path: Record<never, never>;
    query: { session?: string; name?: string; image?: string; network?: string; workspace?: string };
    body: undefined;
    answer: undefined;
  };
  /** GET /mcp: Read events of an MCP session, from the last one that the client got */
  readMcpEvents: {
    path: Record<never, never>;
    query: { session?: string; name?: string; image?: string; network?: string; workspace?: string };
    body: undefined;
    answer: undefined;
  };
  /** POST /mcp: Send a message of the Model Context Protocol; `initialize` opens an MCP session */
  sendMcpMessage: {
    path: Record<never, never>;
    query: { session?: string; name?: string; image?: string; network?: string; workspace?: string };
    body: unknown;
    answer: undefined;
  };
  /** GET /metrics: Read the metrics, in the text format of Prometheus */
  getMetrics: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: undefined;
    answer: undefined;
  };
  /** GET /openapi.json: Read this document */
  getOpenApi: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: undefined;
    answer: unknown;
  };
  /** GET /readyz: Check that every runtime answers and that the store can be written */
  getReadiness: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: undefined;
    answer: DaemonHealth;
  };
  /** GET /v1/images: List the images that a session can be created from */
  listImages: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: undefined;
    answer: ImageView[];
  };
  /** POST /v1/images/commit: Make an image from a session's root and stream how far it is */
  commitImage: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: CommitImageRequest;
    answer: undefined;
  };
  /** POST /v1/images/prune: Remove layers of images that nothing uses */
  pruneImages: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: undefined;
    answer: RemovedImagesView;
  };
  /** POST /v1/images/pull: Pull an image from a registry and stream how far it is */
  pullImage: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: PullImageRequest;
    answer: undefined;
  };
  /** DELETE /v1/images/{image}: Remove an image */
  removeImage: {
    path: { image: string };
    query: Record<never, never>;
    body: undefined;
    answer: RemovedImagesView;
  };
  /** GET /v1/images/{image}: Describe an image that was pulled or imported */
  getImage: {
    path: { image: string };
    query: Record<never, never>;
    body: undefined;
    answer: ImageDetailsView;
  };
  /** GET /v1/keys: List the API keys, without their secrets */
  listKeys: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: undefined;
    answer: KeyList;
  };
  /** POST /v1/keys: Create an API key; only this answer contains its secret */
  createKey: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: CreateKeyRequest;
    answer: NewKeyView;
  };
  /** DELETE /v1/keys/{key_name}: Remove an API key; what it owns stays */
  removeKey: {
    path: { keyName: string };
    query: Record<never, never>;
    body: undefined;
    answer: OkView;
  };
  /** GET /v1/network/packages: List the registries that the network `packages` allows */
  listPackageRegistries: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: undefined;
    answer: PackagesView;
  };
  /** POST /v1/network/packages: Ask the host's package managers for their registries again */
  detectPackageRegistries: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: undefined;
    answer: PackagesView;
  };
  /** GET /v1/pools: List the pools, with how often a create found a sandbox in them */
  listPools: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: undefined;
    answer: PoolView[];
  };
  /** PUT /v1/pools/{image}: Set how many sandboxes of an image wait in its pool */
  setPool: {
    path: { image: string };
    query: Record<never, never>;
    body: SetPoolRequest;
    answer: PoolView;
  };
  /** GET /v1/secrets: List secrets, without their values */
  listSecrets: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: undefined;
    answer: SecretList;
  };
  /** DELETE /v1/secrets/{secret_name}: Remove a secret */
  removeSecret: {
    path: { secretName: string };
    query: Record<never, never>;
    body: undefined;
    answer: OkView;
  };
  /** PUT /v1/secrets/{secret_name}: Store a secret, or replace it */
  setSecret: {
    path: { secretName: string };
    query: Record<never, never>;
    body: SetSecretRequest;
    answer: SecretView;
  };
  /** GET /v1/sessions: List sessions: by default, all except destroyed and expired ones */
  listSessions: {
    path: Record<never, never>;
    query: { status?: "creating" | "running" | "paused" | "stopped" | "pool_idle" | "destroying" | "destroyed" | "expired" | "crashed" | readonly ("creating" | "running" | "paused" | "stopped" | "pool_idle" | "destroying" | "destroyed" | "expired" | "crashed")[]; label?: string | readonly (string)[]; name?: string };
    body: undefined;
    answer: SessionView[];
  };
  /** POST /v1/sessions: Create a session */
  createSession: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: CreateSessionRequest;
    answer: SessionView;
  };
  /** DELETE /v1/sessions/{session_id}: Destroy a session */
  destroySession: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: undefined;
    answer: OkView;
  };
  /** GET /v1/sessions/{session_id}: Describe a session */
  getSession: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: undefined;
    answer: SessionView;
  };
  /** PATCH /v1/sessions/{session_id}: Change the lifetime or the labels of a session */
  updateSession: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: UpdateSessionRequest;
    answer: SessionView;
  };
  /** GET /v1/sessions/{session_id}/archive: Read a directory as a tar archive */
  readArchive: {
    path: { sessionId: string };
    query: { path: string };
    body: undefined;
    answer: undefined;
  };
  /** PUT /v1/sessions/{session_id}/archive: Unpack a tar archive into a directory */
  unpackArchive: {
    path: { sessionId: string };
    query: { path: string };
    body: undefined;
    answer: WroteView;
  };
  /** POST /v1/sessions/{session_id}/exec: Run a command in a persistent shell */
  exec: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: ApiExecRequest;
    answer: ExecReply | DetachedView;
  };
  /** POST /v1/sessions/{session_id}/exec/stream: Run a command in a persistent shell and stream its output */
  execStream: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: ApiExecRequest;
    answer: undefined;
  };
  /** GET /v1/sessions/{session_id}/execs: List recent commands and runs, the oldest first */
  listExecs: {
    path: { sessionId: string };
    query: { after?: string; limit?: number };
    body: undefined;
    answer: ApiExecView[];
  };
  /** GET /v1/sessions/{session_id}/execs/{exec_id}: Stream the output of a command or run from an offset */
  followExec: {
    path: { sessionId: string; execId: string };
    query: { from?: number; follow?: boolean };
    body: undefined;
    answer: undefined;
  };
  /** GET /v1/sessions/{session_id}/files/{path}: Read a file, or a range of its bytes */
  readFile: {
    path: { sessionId: string; path: string };
    query: Record<never, never>;
    body: undefined;
    answer: undefined;
  };
  /** PUT /v1/sessions/{session_id}/files/{path}: Write a file; a write that fails changes nothing */
  writeFile: {
    path: { sessionId: string; path: string };
    query: { mode?: string };
    body: undefined;
    answer: WroteView;
  };
  /** POST /v1/sessions/{session_id}/fork: Make copies of a session */
  forkSession: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: ForkRequest;
    answer: ForkView;
  };
  /** DELETE /v1/sessions/{session_id}/fs: Delete a file or directory */
  deleteFile: {
    path: { sessionId: string };
    query: { path: string; recursive?: boolean };
    body: undefined;
    answer: OkView;
  };
  /** GET /v1/sessions/{session_id}/fs/list: List a directory: by default, /workspace */
  listFiles: {
    path: { sessionId: string };
    query: { path?: string; recursive?: boolean };
    body: undefined;
    answer: ListView;
  };
  /** POST /v1/sessions/{session_id}/fs/mkdir: Create a directory */
  makeDirectory: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: MkdirRequest;
    answer: FileView;
  };
  /** POST /v1/sessions/{session_id}/fs/move: Move a file or directory */
  moveFile: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: MoveRequest;
    answer: FileView;
  };
  /** GET /v1/sessions/{session_id}/fs/read: Read a small file as JSON */
  readFileAsJson: {
    path: { sessionId: string };
    query: { path: string; maxBytes?: number };
    body: undefined;
    answer: FsReadView;
  };
  /** GET /v1/sessions/{session_id}/fs/stat: Describe a file or directory */
  statFile: {
    path: { sessionId: string };
    query: { path: string; follow?: boolean };
    body: undefined;
    answer: FileView;
  };
  /** POST /v1/sessions/{session_id}/fs/upload: Upload the files of a form */
  uploadFiles: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: undefined;
    answer: UploadedView;
  };
  /** GET /v1/sessions/{session_id}/fs/watch: Stream what changes in a directory: by default, /workspace */
  watchFiles: {
    path: { sessionId: string };
    query: { path?: string; recursive?: boolean };
    body: undefined;
    answer: undefined;
  };
  /** POST /v1/sessions/{session_id}/fs/write: Write a small file from JSON */
  writeFileFromJson: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: FsWriteRequest;
    answer: OkView;
  };
  /** POST /v1/sessions/{session_id}/input: Send input to a shell's terminal */
  sendInput: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: InputRequest;
    answer: OkView;
  };
  /** GET /v1/sessions/{session_id}/network: Describe what a session may reach over the network */
  getNetwork: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: undefined;
    answer: NetworkView;
  };
  /** PUT /v1/sessions/{session_id}/network: Change what a session may reach over the network */
  setNetwork: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: SetNetworkRequest;
    answer: NetworkView;
  };
  /** GET /v1/sessions/{session_id}/network/log: Read the last decisions about a session's network, or follow them */
  getNetworkLog: {
    path: { sessionId: string };
    query: { follow?: boolean; after?: number };
    body: undefined;
    answer: NetworkLogView;
  };
  /** POST /v1/sessions/{session_id}/pause: Pause a session until the next request that uses it */
  pauseSession: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: undefined;
    answer: SessionView;
  };
  /** GET /v1/sessions/{session_id}/ports: List the TCP servers in a session's sandbox */
  listPorts: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: undefined;
    answer: PortList;
  };
  /** GET /v1/sessions/{session_id}/ports/{port}: Find the address of a server's root */
  findPort: {
    path: { sessionId: string; port: number };
    query: Record<never, never>;
    body: undefined;
    answer: undefined;
  };
  /** GET /v1/sessions/{session_id}/ports/{port}/: Send a request to a server's root */
  proxyPortRoot: {
    path: { sessionId: string; port: number };
    query: Record<never, never>;
    body: undefined;
    answer: undefined;
  };
  /** GET /v1/sessions/{session_id}/ports/{port}/connect: Connect to a port over TCP: with the headers Connection: Upgrade and Upgrade: cove-tcp */
  connectPort: {
    path: { sessionId: string; port: number };
    query: Record<never, never>;
    body: undefined;
    answer: undefined;
  };
  /** DELETE /v1/sessions/{session_id}/ports/{port}/url: Take back all links to a port */
  deletePortUrls: {
    path: { sessionId: string; port: number };
    query: Record<never, never>;
    body: undefined;
    answer: OkView;
  };
  /** POST /v1/sessions/{session_id}/ports/{port}/url: Make a link to a port */
  createPortUrl: {
    path: { sessionId: string; port: number };
    query: Record<never, never>;
    body: PortUrlRequest;
    answer: PortUrlView;
  };
  /** GET /v1/sessions/{session_id}/ports/{port}/{path}: Send a request to a server in the sandbox: HTTP with any method, server-sent events, WebSocket */
  proxyPort: {
    path: { sessionId: string; port: number; path: string };
    query: Record<never, never>;
    body: undefined;
    answer: undefined;
  };
  /** POST /v1/sessions/{session_id}/resize: Resize a shell's terminal */
  resizeTerminal: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: ResizeRequest;
    answer: OkView;
  };
  /** POST /v1/sessions/{session_id}/resume: Resume a paused session */
  resumeSession: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: undefined;
    answer: SessionView;
  };
  /** POST /v1/sessions/{session_id}/run: Run a program outside the shells */
  run: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: ApiRunRequest;
    answer: RunReply | DetachedView;
  };
  /** POST /v1/sessions/{session_id}/run/stream: Run a program outside the shells and stream its output */
  runStream: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: ApiRunRequest;
    answer: undefined;
  };
  /** POST /v1/sessions/{session_id}/runs/{exec_id}/stdin: Write to the open standard input of a run, as fast as its program reads */
  writeStdin: {
    path: { sessionId: string; execId: string };
    query: { close?: boolean };
    body: undefined;
    answer: StdinView;
  };
  /** POST /v1/sessions/{session_id}/runs/{exec_id}/stdin/close: Close the open standard input of a run */
  closeStdin: {
    path: { sessionId: string; execId: string };
    query: Record<never, never>;
    body: undefined;
    answer: StdinView;
  };
  /** GET /v1/sessions/{session_id}/shells: List the shells of a session */
  listShells: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: undefined;
    answer: ShellView[];
  };
  /** POST /v1/sessions/{session_id}/shells: Open another shell */
  openShell: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: OpenShellRequest;
    answer: ShellView;
  };
  /** DELETE /v1/sessions/{session_id}/shells/{shell}: Close a shell */
  closeShell: {
    path: { sessionId: string; shell: string };
    query: Record<never, never>;
    body: undefined;
    answer: OkView;
  };
  /** POST /v1/sessions/{session_id}/shells/{shell}/reset: Replace a shell by a new one */
  resetShell: {
    path: { sessionId: string; shell: string };
    query: Record<never, never>;
    body: undefined;
    answer: ShellView;
  };
  /** POST /v1/sessions/{session_id}/signal: Send a signal to a shell's foreground program, or to one command or run */
  sendSignal: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: SignalRequest;
    answer: OkView;
  };
  /** POST /v1/sessions/{session_id}/snapshots: Make a snapshot of a session */
  createSnapshot: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: CreateSnapshotRequest;
    answer: SnapshotView;
  };
  /** POST /v1/sessions/{session_id}/start: Start a stopped session again */
  startSession: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: undefined;
    answer: SessionView;
  };
  /** GET /v1/sessions/{session_id}/stats: Read what a session uses now */
  getSessionStats: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: undefined;
    answer: StatsView;
  };
  /** POST /v1/sessions/{session_id}/stop: Stop a session: end its processes, and keep its disk */
  stopSession: {
    path: { sessionId: string };
    query: Record<never, never>;
    body: undefined;
    answer: SessionView;
  };
  /** GET /v1/sessions/{session_id}/terminal: Attach to a terminal over WebSocket */
  attachTerminal: {
    path: { sessionId: string };
    query: { shell?: string; cols?: number; rows?: number };
    body: undefined;
    answer: undefined;
  };
  /** POST /v1/sessions/{session_id}/tools/{tool}: Call a tool in a session, with its arguments */
  callTool: {
    path: { sessionId: string; tool: "read" | "write" | "edit" | "ls" | "grep" | "find" | "git" | "diff" | "delete" | "bash" | "run_background" | "wait" | "output" | "kill" | "expose_port" | "snapshot" | "restore" | "network_request" };
    query: Record<never, never>;
    body: Record<string, unknown>;
    answer: ToolReplyView;
  };
  /** GET /v1/snapshots: List snapshots */
  listSnapshots: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: undefined;
    answer: SnapshotList;
  };
  /** DELETE /v1/snapshots/{snapshot_id}: Remove a snapshot */
  deleteSnapshot: {
    path: { snapshotId: string };
    query: Record<never, never>;
    body: undefined;
    answer: OkView;
  };
  /** GET /v1/snapshots/{snapshot_id}: Describe a snapshot */
  getSnapshot: {
    path: { snapshotId: string };
    query: Record<never, never>;
    body: undefined;
    answer: SnapshotView;
  };
  /** GET /v1/tools: List the tools of agents, in the form that a model provider takes */
  listTools: {
    path: Record<never, never>;
    query: { format?: "mcp" | "openai" | "anthropic" | "gemini" };
    body: undefined;
    answer: unknown[];
  };
  /** GET /v1/workspaces: List workspaces */
  listWorkspaces: {
    path: Record<never, never>;
    query: Record<never, never>;
    body: undefined;
    answer: WorkspaceList;
  };
  /** DELETE /v1/workspaces/{workspace_id}: Delete a workspace with everything in it */
  deleteWorkspace: {
    path: { workspaceId: string };
    query: { force?: boolean };
    body: undefined;
    answer: OkView;
  };
  /** PUT /v1/workspaces/{workspace_id}: Make a workspace */
  createWorkspace: {
    path: { workspaceId: string };
    query: Record<never, never>;
    body: undefined;
    answer: OkView;
  };
  /** GET /v1/workspaces/{workspace_id}/fs: List a directory of a workspace */
  listWorkspaceFiles: {
    path: { workspaceId: string };
    query: { path?: string; recursive?: boolean };
    body: undefined;
    answer: ListView;
  };
  /** GET /v1/workspaces/{workspace_id}/fs/read: Read a small file of a workspace */
  readWorkspaceFile: {
    path: { workspaceId: string };
    query: { path: string; maxBytes?: number };
    body: undefined;
    answer: FsReadView;
  };
  /** POST /v1/workspaces/{workspace_id}/fs/upload: Upload files into a workspace */
  uploadWorkspaceFiles: {
    path: { workspaceId: string };
    query: Record<never, never>;
    body: undefined;
    answer: UploadedView;
  };
  /** POST /v1/workspaces/{workspace_id}/fs/write: Write a small file of a workspace */
  writeWorkspaceFile: {
    path: { workspaceId: string };
    query: Record<never, never>;
    body: FsWriteRequest;
    answer: OkView;
  };
}

/** The method and the path of each operation. */
export const OPERATIONS = {
  getHealth: ["GET", "/healthz"],
  endMcpSession: ["DELETE", "/mcp"],
  readMcpEvents: ["GET", "/mcp"],
  sendMcpMessage: ["POST", "/mcp"],
  getMetrics: ["GET", "/metrics"],
  getOpenApi: ["GET", "/openapi.json"],
  getReadiness: ["GET", "/readyz"],
  listImages: ["GET", "/v1/images"],
  commitImage: ["POST", "/v1/images/commit"],
  pruneImages: ["POST", "/v1/images/prune"],
  pullImage: ["POST", "/v1/images/pull"],
  removeImage: ["DELETE", "/v1/images/{image}"],
  getImage: ["GET", "/v1/images/{image}"],
  listKeys: ["GET", "/v1/keys"],
  createKey: ["POST", "/v1/keys"],
  removeKey: ["DELETE", "/v1/keys/{keyName}"],
  listPackageRegistries: ["GET", "/v1/network/packages"],
  detectPackageRegistries: ["POST", "/v1/network/packages"],
  listPools: ["GET", "/v1/pools"],
  setPool: ["PUT", "/v1/pools/{image}"],
  listSecrets: ["GET", "/v1/secrets"],
  removeSecret: ["DELETE", "/v1/secrets/{secretName}"],
  setSecret: ["PUT", "/v1/secrets/{secretName}"],
  listSessions: ["GET", "/v1/sessions"],
  createSession: ["POST", "/v1/sessions"],
  destroySession: ["DELETE", "/v1/sessions/{sessionId}"],
  getSession: ["GET", "/v1/sessions/{sessionId}"],
  updateSession: ["PATCH", "/v1/sessions/{sessionId}"],
  readArchive: ["GET", "/v1/sessions/{sessionId}/archive"],
  unpackArchive: ["PUT", "/v1/sessions/{sessionId}/archive"],
  exec: ["POST", "/v1/sessions/{sessionId}/exec"],
  execStream: ["POST", "/v1/sessions/{sessionId}/exec/stream"],
  listExecs: ["GET", "/v1/sessions/{sessionId}/execs"],
  followExec: ["GET", "/v1/sessions/{sessionId}/execs/{execId}"],
  readFile: ["GET", "/v1/sessions/{sessionId}/files/{path}"],
  writeFile: ["PUT", "/v1/sessions/{sessionId}/files/{path}"],
  forkSession: ["POST", "/v1/sessions/{sessionId}/fork"],
  deleteFile: ["DELETE", "/v1/sessions/{sessionId}/fs"],
  listFiles: ["GET", "/v1/sessions/{sessionId}/fs/list"],
  makeDirectory: ["POST", "/v1/sessions/{sessionId}/fs/mkdir"],
  moveFile: ["POST", "/v1/sessions/{sessionId}/fs/move"],
  readFileAsJson: ["GET", "/v1/sessions/{sessionId}/fs/read"],
  statFile: ["GET", "/v1/sessions/{sessionId}/fs/stat"],
  uploadFiles: ["POST", "/v1/sessions/{sessionId}/fs/upload"],
  watchFiles: ["GET", "/v1/sessions/{sessionId}/fs/watch"],
  writeFileFromJson: ["POST", "/v1/sessions/{sessionId}/fs/write"],
  sendInput: ["POST", "/v1/sessions/{sessionId}/input"],
  getNetwork: ["GET", "/v1/sessions/{sessionId}/network"],
  setNetwork: ["PUT", "/v1/sessions/{sessionId}/network"],
  getNetworkLog: ["GET", "/v1/sessions/{sessionId}/network/log"],
  pauseSession: ["POST", "/v1/sessions/{sessionId}/pause"],
  listPorts: ["GET", "/v1/sessions/{sessionId}/ports"],
  findPort: ["GET", "/v1/sessions/{sessionId}/ports/{port}"],
  proxyPortRoot: ["GET", "/v1/sessions/{sessionId}/ports/{port}/"],
  connectPort: ["GET", "/v1/sessions/{sessionId}/ports/{port}/connect"],
  deletePortUrls: ["DELETE", "/v1/sessions/{sessionId}/ports/{port}/url"],
  createPortUrl: ["POST", "/v1/sessions/{sessionId}/ports/{port}/url"],
  proxyPort: ["GET", "/v1/sessions/{sessionId}/ports/{port}/{path}"],
  resizeTerminal: ["POST", "/v1/sessions/{sessionId}/resize"],
  resumeSession: ["POST", "/v1/sessions/{sessionId}/resume"],
  run: ["POST", "/v1/sessions/{sessionId}/run"],
  runStream: ["POST", "/v1/sessions/{sessionId}/run/stream"],
  writeStdin: ["POST", "/v1/sessions/{sessionId}/runs/{execId}/stdin"],
  closeStdin: ["POST", "/v1/sessions/{sessionId}/runs/{execId}/stdin/close"],
  listShells: ["GET", "/v1/sessions/{sessionId}/shells"],
  openShell: ["POST", "/v1/sessions/{sessionId}/shells"],
  closeShell: ["DELETE", "/v1/sessions/{sessionId}/shells/{shell}"],
  resetShell: ["POST", "/v1/sessions/{sessionId}/shells/{shell}/reset"],
  sendSignal: ["POST", "/v1/sessions/{sessionId}/signal"],
  createSnapshot: ["POST", "/v1/sessions/{sessionId}/snapshots"],
  startSession: ["POST", "/v1/sessions/{sessionId}/start"],
  getSessionStats: ["GET", "/v1/sessions/{sessionId}/stats"],
  stopSession: ["POST", "/v1/sessions/{sessionId}/stop"],
  attachTerminal: ["GET", "/v1/sessions/{sessionId}/terminal"],
  callTool: ["POST", "/v1/sessions/{sessionId}/tools/{tool}"],
  listSnapshots: ["GET", "/v1/snapshots"],
  deleteSnapshot: ["DELETE", "/v1/snapshots/{snapshotId}"],
  getSnapshot: ["GET", "/v1/snapshots/{snapshotId}"],
  listTools: ["GET", "/v1/tools"],
  listWorkspaces: ["GET", "/v1/workspaces"],
  deleteWorkspace: ["DELETE", "/v1/workspaces/{workspaceId}"],
  createWorkspace: ["PUT", "/v1/workspaces/{workspaceId}"],
  listWorkspaceFiles: ["GET", "/v1/workspaces/{workspaceId}/fs"],
  readWorkspaceFile: ["GET", "/v1/workspaces/{workspaceId}/fs/read"],
  uploadWorkspaceFiles: ["POST", "/v1/workspaces/{workspaceId}/fs/upload"],
  writeWorkspaceFile: ["POST", "/v1/workspaces/{workspaceId}/fs/write"],
} as const satisfies Record<keyof Operations, readonly [method: string, path: string]>;

/** Fields whose keys are data and not names, such as those of `labels`. */
export const MAP_FIELDS: readonly string[] = ["details","env","labels","structured"];
