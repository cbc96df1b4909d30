// What a daemon has beside sessions: images, pools, keys, secrets, snapshots and workspaces.
import { apiError, ConnectionLost } from "./errors.js";
import { WorkspaceFiles, flags } from "./files.js";
import type {
  CreateKeyRequest,
  ErrorBody,
  ImageDetailsView,
  ImageView,
  KeyView,
  NewKeyView,
  PoolView,
  PullProgress,
  RemovedImagesView,
  SecretView,
  SnapshotView,
  WorkspaceView,
} from "./generated.js";
import { fromWire } from "./names.js";
import type { ServerEvent } from "./sse.js";
import type { CallOptions, Transport } from "./transport.js";

class Resource {
  protected readonly transport: Transport;

  constructor(transport: Transport) {
    this.transport = transport;
  }
}

/** Images that sessions are made from. */
export class Images extends Resource {
  list(options: CallOptions = {}): Promise<ImageView[]> {
    return this.transport.json("listImages", options);
  }

  get(image: string, options: CallOptions = {}): Promise<ImageDetailsView> {
    return this.transport.json("getImage", { path: { image }, ...options });
  }

  /** Pulls an image from its registry. The pull goes on if this call is aborted. */
  async pull(image: string, options: CallOptions & { ifMissing?: boolean; onProgress?: (progress: PullProgress) => void } = {}): Promise<ImageDetailsView> {
    const { ifMissing, onProgress, ...call } = options;
    const events = this.transport.events("pullImage", { body: { image, ...flags({ ifMissing }) }, ...call });
    return await imageOf(events, onProgress, "the pull goes on, and a second one waits for it");
  }

  /** Makes an image from what a session has changed of its root. The session needs a writable root. For admins. */
  async commit(sessionId: string, image: string, options: CallOptions & { onProgress?: (progress: PullProgress) => void } = {}): Promise<ImageDetailsView> {
    const { onProgress, ...call } = options;
    return await imageOf(this.transport.events("commitImage", { body: { sessionId, image }, ...call }), onProgress, "the commit goes on");
  }

  /** Removes an image. Returns what was freed. */
  delete(image: string, options: CallOptions = {}): Promise<RemovedImagesView> {
    return this.transport.json("removeImage", { path: { image }, ...options });
  }

  /** Removes what no image and no session uses. */
  prune(options: CallOptions = {}): Promise<RemovedImagesView> {
    return this.transport.json("pruneImages", options);
  }
}

/** The image that a stream of events ends with. */
async function imageOf(events: AsyncGenerator<ServerEvent, void, undefined>, onProgress: ((progress: PullProgress) => void) | undefined, otherwise: string): Promise<ImageDetailsView> {
  for await (const { event, data } of events) {
    const value = fromWire(JSON.parse(data));
    if (event === "progress") onProgress?.(value as PullProgress);
    if (event === "done") return value as ImageDetailsView;
    if (event === "error") {
      const body = value as ErrorBody;
      throw apiError({ code: body.errorCode, message: body.message, status: 0, details: body.details as Record<string, unknown> | undefined });
    }
  }
  throw new ConnectionLost(`the daemon's answer ended before the image was there; ${otherwise}`);
}

/** Sandboxes that are started ahead of time. */
export class Pools extends Resource {
  list(options: CallOptions = {}): Promise<PoolView[]> {
    return this.transport.json("listPools", options);
  }

  /** Sets how many sandboxes of an image wait; 0 ends the pool. */
  set(image: string, size: number, options: CallOptions & { runtime?: string } = {}): Promise<PoolView> {
    const { runtime, ...call } = options;
    return this.transport.json("setPool", { path: { image }, body: { size, ...flags({ runtime }) }, ...call });
  }
}

/** Keys of the daemon. For admins. */
export class Keys extends Resource {
  async list(options: CallOptions = {}): Promise<KeyView[]> {
    return (await this.transport.json("listKeys", options)).keys;
  }

  /** Makes a key. Only this answer has its secret. */
  create(key: CreateKeyRequest, options: CallOptions = {}): Promise<NewKeyView> {
    return this.transport.json("createKey", { body: key, ...options });
  }

  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json("removeKey", { path: { keyName: name }, ...options });
  }
}

/** Values that the daemon adds to requests of sandboxes, which never see them. */
export class Secrets extends Resource {
  async list(options: CallOptions = {}): Promise<SecretView[]> {
    return (await this.transport.json("listSecrets", options)).secrets;
  }

  /** Stores or replaces a secret. With `hosts`, it is sent to these only. */
  set(name: string, value: string, options: CallOptions & { hosts?: string[] } = {}): Promise<SecretView> {
    const { hosts, ...call } = options;
    return this.transport.json("setSecret", { path: { secretName: name }, body: { value, ...flags({ hosts }) }, ...call });
  }

  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json("removeSecret", { path: { secretName: name }, ...options });
  }
}

/** What sessions have on their disks and in their shells, kept for other sessions. `session.snapshot` makes one. */
export class Snapshots extends Resource {
  async list(options: CallOptions = {}): Promise<SnapshotView[]> {
    return (await this.transport.json("listSnapshots", options)).snapshots;
  }

  get(id: string, options: CallOptions = {}): Promise<SnapshotView> {
    return this.transport.json("getSnapshot", { path: { snapshotId: id }, ...options });
  }

  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json("deleteSnapshot", { path: { snapshotId: id }, ...options });
  }
}

/** Directories that outlive sessions. A create with `workspaceId` makes and uses one. */
export class Workspaces extends Resource {
  async list(options: CallOptions = {}): Promise<WorkspaceView[]> {
    return (await this.transport.json("listWorkspaces", options)).workspaces;
  }

  /** Makes a workspace. One that exists stays as it is. */
  async create(id: string, options: CallOptions = {}): Promise<void> {
    await this.transport.json("createWorkspace", { path: { workspaceId: id }, ...options });
  }

  /** The files of a workspace, with and without a session. */
  files(id: string): WorkspaceFiles {
    return new WorkspaceFiles(this.transport, id);
  }

  /** Deletes a workspace. With `force`, sessions that use it are destroyed first. */
  async delete(id: string, options: CallOptions & { force?: boolean } = {}): Promise<void> {
    const { force, ...call } = options;
    await this.transport.json("deleteWorkspace", { path: { workspaceId: id }, query: flags({ force }), ...call });
  }
}
