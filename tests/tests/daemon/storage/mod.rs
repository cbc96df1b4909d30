//! Images, disks and workspaces: what sandboxes are made from, what they write to, and what outlives them.

mod commit;
mod disks;
mod hostile_workspaces;
mod image_user;
mod images;
mod kept_facts;
mod made_images;
mod pull;
mod pull_faults;
mod real_work;
mod snapshots;
mod stopped;
mod workspace_disks;
mod workspaces;
