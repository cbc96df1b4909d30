//! Decides what a sandbox may reach: which names it may resolve, which addresses and ports it may connect to, and which server
//! names it may speak there. The daemon's carrier, which owns the sockets, asks and obeys.
//!
//! ```text
//! DNS query      → Policy::may_resolve(name)
//! connection     → Policy::connect(target)          → Any | Named | Unnamed
//! first bytes    → Policy::spoken(target, spoken)
//! ```
//!
//! What holds for every policy, whatever its rules:
//!
//! - Loopback, link-local, metadata and multicast addresses are never allowed, and neither is the daemon itself.
//! - A deny rule wins over every allow rule. Adding a deny rule allows nothing new; adding an allow rule denies nothing.
//! - All spellings of a name or an address are decided alike. Text that a resolver could take for an address is not a name.
//! - Under a maximum, nothing is allowed that the maximum does not allow.
//! - A private address, or an address of this host, needs a rule that names its range or is marked private.
//!
//! **Invariant:** nothing in this crate does I/O, reads the clock or resolves a name.

mod address;
mod denial;
#[cfg(any(test, fuzzing))]
#[path = "fuzz_test.rs"]
pub mod fuzz;
mod maximum;
mod name;
mod network;
mod policy;
#[cfg(test)]
mod policy_test;
#[cfg(test)]
mod promises_test;
mod rule;
mod rule_text;

pub use address::{AddressClass, canonical, carried, classify};
pub use denial::{Denial, Reason};
pub use name::{HostName, MAX_NAME_BYTES, NameError};
pub use network::{Network, NetworkError};
pub use policy::{MAX_RULES, Opening, Policy, PolicyError, Spoken, Target};
pub use rule::{MAX_PORTS, MAX_RULE_BYTES, Rule, RuleError, Side};
