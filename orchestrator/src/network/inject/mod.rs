//! Headers that the daemon adds to the requests of a session, with values that the sandbox never sees.
//!
//! ```text
//!  program ══ TLS, certificate of the session's own authority ══▶ terminate ─▶ forward ══ TLS, checked as any client does ══▶ host
//!                                                                      headers: remove the program's, add ours
//! ```
//!
//! `connection` comes here after the first bytes have named a host with an injection and the policy has allowed it. Everything else
//! passes through as it is. `check` decides what may be asked for, `headers` what changes in a request (pure); `authority` makes
//! certificates, `roots` knows whom the daemon itself trusts, and `counted` counts the bytes.
//!
//! **Invariant:** a value is read from the table of secrets for each request, and goes to the host that the injection names and to no
//! other: the server's certificate has been checked for that name, and so has the `Host` of the request.

mod authority;
mod check;
mod counted;
mod forward;
mod headers;
mod roots;
mod terminate;

pub use authority::{Authorities, Authority, AuthorityError};
pub use check::{InjectError, Injection, check, read_all};
pub use roots::Roots;
pub use terminate::{Terminated, carry};
