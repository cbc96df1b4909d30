//! What a sandbox cannot see and cannot do, whoever runs the daemon.

mod beacon;
mod ordinary_user;
mod own_limits;
mod probe;
mod profiles;
mod root;
mod shared_files;
mod tools;
