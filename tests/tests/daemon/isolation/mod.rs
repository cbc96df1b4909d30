//! What a sandbox cannot see and cannot do, whoever runs the daemon.

mod beacon;
mod ordinary_user;
mod probe;
mod profiles;
mod shared_files;
mod tools;
