// A directory with the SDK installed as users have it: what is in the package, and nothing of this folder's development.
import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../../", import.meta.url));

export class App {
  readonly directory: string;

  private constructor(directory: string) {
    this.directory = directory;
  }

  /** With the programs of this folder, compiled. */
  static async create(): Promise<App> {
    const directory = await mkdtemp(join(tmpdir(), "cove-app-"));
    const installed = join(directory, "node_modules/@cove/sdk");
    await mkdir(installed, { recursive: true });
    await cp(join(root, "package.json"), join(installed, "package.json"));
    await cp(join(root, "dist"), join(installed, "dist"), { recursive: true });
    await cp(join(root, "build/runtimes"), directory, { recursive: true });
    await writeFile(join(directory, "package.json"), '{ "private": true, "type": "module" }');
    return new App(directory);
  }

  async remove(): Promise<void> {
    await rm(this.directory, { recursive: true, force: true });
  }
}
