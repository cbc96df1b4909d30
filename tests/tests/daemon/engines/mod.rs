//! Stories about container engines, which do not apply to the runtime `local`.

mod contained;
mod engine;
mod outage;
mod own_images;
mod pull;
mod snapshots;
