//! How entries end: at their time, forgotten, or since nobody has needed them for long.

use ackpace_host_base::clock::monotonic_ns;
use ackpace_host_base::failure::Failure;
use ackpace_host_base::say;
use ackpace_wire::cluster::Tuple;

use super::entry::{self, Entry, Key};
use super::{FLOWS_MAX, Switch};

/// Packets on their way when an entry is forgotten still find it so long.
const FORGET_NS: u64 = 2_000_000_000;
/// An entry of a server that has ended goes when no packet of the client has come for so long. Its connection may live on at another
/// node: then clients' keep-alives (tcp(7), two hours unless a program asks for less) and other nodes' servers, which
/// close idle connections, are what ends it.
pub const IDLE_NS: u64 = 3_600_000_000_000;
/// How often such entries are looked for. A full map takes some 30 ms.
const AGE_NS: u64 = 60_000_000_000;

impl Switch {
    /// A server asks from now on. What it decides about is its own until [`Switch::server_is_gone`].
    pub fn server_has_come(&mut self) {
        // Another one than that of any other server, also of a broker before this one.
        self.owner = ((monotonic_ns() >> 20) as u32).max(1);
    }

    /// Nobody asks any more.
    pub fn server_is_gone(&mut self) {
        self.owner = 0;
    }

    /// Those of a network namespace that is gone, whose number this one has, are removed.
    pub(super) fn take_entries_over(&mut self, was_there: bool) -> Result<(), Failure> {
        for (key, entry) in self.program.entries("flows")? {
            match (Key::read(&key), Entry::read(&entry)) {
                (Some(key), Some(entry)) if was_there && entry.expires_ns != 0 => {
                    self.ends.insert((entry.expires_ns, key));
                }
                (Some(_), Some(_)) if was_there => {}
                _ => self.program.delete("flows", &key)?,
            }
        }
        Ok(())
    }

    /// Removes an entry, two seconds later, for packets that are on their way. Those that wait are given to the own stack.
    pub fn forget(&mut self, tuple: &Tuple) {
        let key = Key::of(tuple);
        let Some(entry) = self.read(key) else {
            return;
        };
        // A guest's stays silent.
        let forgotten = Entry {
            expires_ns: monotonic_ns() + FORGET_NS,
            ..if entry.is_held() {
                entry.guest_again()
            } else {
                entry
            }
        };
        let _ = self.write(key, &forgotten);
        self.collect();
        self.settle(key);
    }

    /// Removes entries that have ended. Packets that wait for a thaw that did not come go into the own stack.
    pub(super) fn sweep(&mut self) {
        let now_ns = monotonic_ns();
        while let Some((end_ns, key)) = self.ends.first().copied().filter(|end| end.0 <= now_ns) {
            self.ends.remove(&(end_ns, key));
            let told = self.program.get("flows", &key.0).ok().flatten();
            let entry = told.and_then(|told| Entry::read(&told));
            let Some(entry) = entry.filter(|entry| entry.expires_ns == end_ns) else {
                continue; // it was replaced
            };
            if entry.is_held() {
                self.unfreeze(key, entry);
                self.settle(key);
            } else {
                self.remove(key);
            }
        }
    }

    /// Removes idle entries, now and then.
    pub(super) fn age(&mut self) {
        let now_ns = monotonic_ns();
        if now_ns < self.age_at_ns {
            return;
        }
        self.age_at_ns = now_ns + AGE_NS;
        match self.forget_idle(IDLE_NS) {
            Ok(left) if left > FLOWS_MAX / 4 * 3 => {
                say!("handoff: {left} moved connections, and there is room for {FLOWS_MAX}")
            }
            Ok(_) => {}
            Err(why) => say!("handoff: can't look for idle connections: {why}"),
        }
    }

    /// Removes the entries that servers before the present one have left, and of which no packet has come for this time. How many are
    /// left.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn forget_idle(&mut self, idle_ns: u64) -> Result<usize, Failure> {
        let (now, idle) = (entry::last(monotonic_ns()), entry::last(idle_ns));
        let entries = self.program.entries("flows")?;
        let mut left = entries.len();
        for (key, told) in entries {
            let (Some(key), Some(entry)) = (Key::read(&key), Entry::read(&told)) else {
                continue;
            };
            let is_owned = self.owner != 0 && entry.owner == self.owner;
            if !is_owned && !entry.is_held() && now.saturating_sub(entry.last) > idle {
                self.remove(key);
                left -= 1;
            }
        }
        Ok(left)
    }
}
