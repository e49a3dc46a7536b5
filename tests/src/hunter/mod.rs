//! The hunter: clients that behave in every way that clients do, over files that change, on disks that fail, with a
//! check of every byte.
//!
//! - `plan` draws what clients ask for and how they behave, `weather` what else goes on; both from a seed.
//! - `world` has the files (`content`) and what others do to them; `history` records what was there when.
//! - `client` runs many connections in one thread. `oracle` judges what arrives on each: the `head`, the
//!   `body`, and the versions of its file that it can be (`track`).
//! - `watch` looks at the process; `run` puts it all together, and `findings` prints what is `wrong`.
//! - `target` is a weather of its own: clients of NFS, over an iSCSI target.
//!
//! It knows of the server only what is visible to everybody: its command line, HTTP, metrics, and /proc. What happens
//! between two system calls depends on the machine, so a seed replays the plans and the weathers, not each moment.

mod body;
mod client;
mod content;
mod files;
mod findings;
mod head;
mod history;
mod oracle;
mod plan;
mod run;
mod target;
mod track;
mod watch;
mod weather;
mod world;
mod wrong;

pub use run::Hunt;

use std::time::{SystemTime, UNIX_EPOCH};

/// The seed in `ACKPACE_SEED`, or a fresh one.
pub fn seed() -> u64 {
    match std::env::var("ACKPACE_SEED") {
        Ok(text) => text.parse().expect("ACKPACE_SEED is a number"),
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            // Short enough to type.
            now.map_or(0, |now| now.as_millis() as u64 % 1_000_000_000)
        }
    }
}
