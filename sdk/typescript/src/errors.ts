// The errors of this SDK. Each has a class to branch on and a message that says what to do.
//
//   CoveError
//   ├─ ApiError             the daemon refused: a class for each error code
//   ├─ CommandFailed        a command with `check` did not exit with 0
//   │  └─ CommandTimedOut   …because it took longer than its timeoutMs
//   ├─ DaemonNotFound       no address was given, and no daemon runs here
//   ├─ BinaryNotFound       the program cove, from which a daemon is started, is not here
//   ├─ EmbeddedFailed       the daemon of Cove.embedded() did not start
//   ├─ ConnectionFailed     the daemon could not be reached; the request did not run
//   ├─ ConnectionLost       the connection broke, and it is not known what became of the request
//   ├─ RequestTimeout       no answer in time
//   ├─ ProtocolError        the answer is not what this SDK understands
//   └─ Unsupported          this JavaScript runtime cannot do it
//
// A caller's own AbortSignal is no error of ours: its reason is thrown as it is.
import type { ErrorCode } from "./generated.js";
import type { ExecResult } from "./result.js";

export class CoveError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** What the daemon said, as far as it is known. */
export interface ApiErrorFacts {
  code: ErrorCode | (string & {});
  status: number;
  message: string;
  details?: Record<string, unknown> | undefined;
  requestId?: string | undefined;
  retryAfterMs?: number | undefined;
}

/** The daemon refused a request. `code` is stable. */
export class ApiError extends CoveError {
  /** What to do, for an error whose message from the daemon does not say it. */
  protected static readonly advice: string = "";
  readonly code: ErrorCode | (string & {});
  /** The HTTP status; 0 for an error in the middle of a stream. */
  readonly status: number;
  /** Facts for programs. The fields depend on the code and are named as on the wire. */
  readonly details: Readonly<Record<string, unknown>>;
  /** The id by which the daemon's log has this request. */
  readonly requestId: string | undefined;
  /** How long to wait before the next try, where waiting helps. */
  readonly retryAfterMs: number | undefined;

  constructor(facts: ApiErrorFacts) {
    const { advice } = new.target;
    super(`${facts.message.replace(/\.$/, "")} (${facts.code})${advice && `. ${advice}`}`);
    this.code = facts.code;
    this.status = facts.status;
    this.details = facts.details ?? {};
    this.requestId = facts.requestId;
    this.retryAfterMs = facts.retryAfterMs;
  }
}

/** The request is malformed, out of bounds, or something that this runtime or host cannot do. */
export class InvalidRequest extends ApiError {}
export class InvalidImage extends ApiError {
  protected static override readonly advice = "cove.images.list() shows the images that exist; a name with a tag, such as python:3.12-slim, is pulled";
}
export class Unauthorized extends ApiError {
  protected static override readonly advice = "Give a key of this daemon: new Cove({ apiKey }) or COVE_API_KEY. `cove key create NAME` makes one";
}
export class Forbidden extends ApiError {}
export class NotFound extends ApiError {}
export class SessionNotFound extends NotFound {
  protected static override readonly advice = "It was destroyed, or belongs to another key: create a new one with cove.session()";
}
export class ShellNotFound extends NotFound {
  protected static override readonly advice = "Open it with session.shells.open({ name })";
}
export class ExecNotFound extends NotFound {
  protected static override readonly advice = "session.execs() lists the commands that the session still remembers";
}
export class FileNotFound extends NotFound {}
export class WorkspaceNotFound extends NotFound {
  protected static override readonly advice = "cove.workspaces.list() shows yours; a create with workspaceId makes one";
}
export class MethodNotAllowed extends ApiError {}
export class Conflict extends ApiError {}
export class ShellBusy extends Conflict {
  protected static override readonly advice = "Wait for that command, end it, or use another shell (session.shells.open) or session.run";

  /** The command that runs in the shell. */
  get runningExecId(): string | undefined {
    const id = this.details["running_exec_id"];
    return typeof id === "string" ? id : undefined;
  }
}
export class SessionExpired extends ApiError {
  protected static override readonly advice = "Create a new one, with a longer ttlSeconds if it has to wait";
}
export class TooLarge extends ApiError {
  protected static override readonly advice = "Write large content to a file with session.files.write, or to the open standard input of a run";
}
export class LimitReached extends ApiError {}
export class SandboxLost extends ApiError {
  protected static override readonly advice = "The session is over: create a new one";
}
export class PortClosed extends ApiError {
  protected static override readonly advice = "Start a server in the sandbox first; session.ports.wait(port) waits for it";
}
export class InternalError extends ApiError {
  protected static override readonly advice = "The daemon's log has the cause";
}

const CLASSES: Record<ErrorCode, new (facts: ApiErrorFacts) => ApiError> = {
  INVALID_REQUEST: InvalidRequest,
  INVALID_IMAGE: InvalidImage,
  UNAUTHORIZED: Unauthorized,
  FORBIDDEN: Forbidden,
  NOT_FOUND: NotFound,
  METHOD_NOT_ALLOWED: MethodNotAllowed,
  SESSION_NOT_FOUND: SessionNotFound,
  SHELL_NOT_FOUND: ShellNotFound,
  FILE_NOT_FOUND: FileNotFound,
  EXEC_NOT_FOUND: ExecNotFound,
  WORKSPACE_NOT_FOUND: WorkspaceNotFound,
  SHELL_BUSY: ShellBusy,
  CONFLICT: Conflict,
  SESSION_EXPIRED: SessionExpired,
  TOO_LARGE: TooLarge,
  LIMIT_REACHED: LimitReached,
  SANDBOX_LOST: SandboxLost,
  PORT_CLOSED: PortClosed,
  INTERNAL_ERROR: InternalError,
};

/** The error of a code. A code that this SDK does not know yet is a plain ApiError. */
export function apiError(facts: ApiErrorFacts): ApiError {
  const known = Object.hasOwn(CLASSES, facts.code) ? CLASSES[facts.code as ErrorCode] : ApiError;
  return new known(facts);
}

/** How much of the output a message repeats. */
const SHOWN_OUTPUT = 2000;

/** A command that was run with `check` failed. */
export class CommandFailed extends CoveError {
  readonly exitCode: number;
  readonly output: string;
  /** The shell's directory after the command; absent for a run. */
  readonly cwd: string | undefined;
  readonly result: ExecResult;

  constructor(result: ExecResult) {
    const output = result.output.trimEnd();
    const shown = output.length > SHOWN_OUTPUT ? `…${output.slice(-SHOWN_OUTPUT)}` : output;
    super(`the command ${howItEnded(result)}${shown && `:\n${shown}`}`);
    this.exitCode = result.exitCode;
    this.output = result.output;
    this.cwd = result.cwd;
    this.result = result;
  }
}

/** A command that was run with `check` took longer than its `timeoutMs`. It was stopped; the shell goes on. */
export class CommandTimedOut extends CommandFailed {}

function howItEnded(result: ExecResult): string {
  const notes: string[] = [];
  if (result.oomKilled) notes.push("memory ran out; ask for more with resources.memoryMb");
  if (result.networkDenied.length > 0) notes.push(`the session's network does not allow ${result.networkDenied.join(", ")}`);
  if (result.reason !== undefined) notes.push(result.reason);
  const extra = notes.length > 0 ? ` (${notes.join("; ")})` : "";
  switch (result.kind) {
    case "exited":
      return `exited with ${result.exitCode}${extra}`;
    case "signaled":
      return `was killed by signal ${result.signal ?? "?"}${extra}`;
    case "timed_out":
      return `was stopped after ${result.durationMs} ms, its time limit; a longer one is timeoutMs${extra}`;
    case "never_ran":
      return `never ran${extra}`;
    case "lost":
      return `was lost: how it ended is not known${extra}`;
  }
}

/** No address was given, and no daemon runs on this machine. */
export class DaemonNotFound extends CoveError {}

/** The program `cove`, from which a daemon is started, is not here. */
export class BinaryNotFound extends CoveError {}

/** The daemon of `Cove.embedded` did not start. */
export class EmbeddedFailed extends CoveError {}

/** The daemon could not be reached. The request did not run. */
export class ConnectionFailed extends CoveError {}

/** The connection broke. Whether the daemon did what was asked is not known. */
export class ConnectionLost extends CoveError {}

/** There was no answer in time. */
export class RequestTimeout extends CoveError {}

/** An answer was not what this SDK understands. */
export class ProtocolError extends CoveError {}

/** This JavaScript runtime cannot do what was asked. */
export class Unsupported extends CoveError {}
