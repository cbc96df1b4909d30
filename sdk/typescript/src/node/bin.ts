#!/usr/bin/env node
// The command `cove` of this package: runs the program that the platform's package carries, so that `npx cove` works.
import { spawn } from "node:child_process";
import { constants } from "node:os";
import { findBinary } from "./embedded.js";

/** The exit codes of a shell for a program that is not there, and after a signal. */
const NOT_FOUND = 127;
const SIGNALLED = 128;

try {
  const child = spawn(await findBinary(), process.argv.slice(2), { stdio: "inherit" });
  // The terminal sends Ctrl-C to both; the program decides what it means. Others are passed on.
  process.on("SIGINT", () => undefined);
  for (const signal of ["SIGTERM", "SIGHUP", "SIGQUIT"] as const) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => {
    console.error(`cove: ${error.message}`);
    process.exit(NOT_FOUND);
  });
  child.on("exit", (code, signal) => process.exit(code ?? SIGNALLED + (signal ? constants.signals[signal] : 0)));
} catch (error) {
  console.error(`cove: ${(error as Error).message}`);
  process.exit(NOT_FOUND);
}
