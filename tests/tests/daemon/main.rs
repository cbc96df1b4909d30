//! Stories of the daemon: the real `cove serve` with real sandboxes, used over HTTP and by commands. The variable
//! `COVE_E2E_RUNTIME` names the runtime. They are one program, because each program links the whole harness.

mod calls;
mod clients;
mod engines;
mod isolation;
mod lifetime;
mod network;
mod storage;
