//! The sockets that are tuned, each in a slot. Slot and generation are its name in the pool (`ConnId`).
//!
//! The kernel tells of sockets in the order of its own table, and new slots are given in that order (freed ones again in any):
//! so the next socket is mostly in the next slot, and a pass walks through memory from front to back.

use std::collections::HashMap;

use ackpace_core::conn::ConnId;

use super::Member;
use crate::snapshot::SocketSnapshot;

/// A slot, free or taken. The generation tells those apart that have it one after the other.
#[derive(Debug, Default)]
struct MemberSlot {
    generation: u32,
    member: Option<Member>,
}

/// All members, by slot and by cookie.
#[derive(Debug, Default)]
pub(super) struct Members {
    slots: Vec<MemberSlot>,
    free: Vec<u32>,
    by_cookie: HashMap<u64, u32>,
    /// The slot after the one that was found or entered last.
    next: usize,
    /// In which pass one was seen last, and how many were seen in it.
    seen: (u64, usize),
}

impl Members {
    pub fn len(&self) -> usize {
        self.by_cookie.len()
    }

    /// The slot of this socket; the next one is looked for first in the slot after it.
    pub fn find(&mut self, cookie: u64) -> Option<usize> {
        let guess = self.slots.get(self.next);
        let is_next = guess
            .and_then(|slot| slot.member.as_ref())
            .is_some_and(|member| member.snapshot.cookie == cookie);
        let at = match is_next {
            true => self.next,
            false => *self.by_cookie.get(&cookie)? as usize,
        };
        self.next = at + 1;
        Some(at)
    }

    /// Enters a socket that [`Members::find`] does not find, and returns its slot. The caller says in which pass it was seen
    /// ([`Members::see`]).
    pub fn enter(&mut self, snapshot: SocketSnapshot) -> usize {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(MemberSlot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let conn = ConnId {
            index,
            generation: slot.generation,
        };
        slot.member = Some(Member::new(conn, snapshot));
        self.by_cookie.insert(snapshot.cookie, index);
        self.next = index as usize + 1;
        index as usize
    }

    /// The one in this slot.
    pub fn at(&mut self, at: usize) -> Option<&mut Member> {
        self.slots.get_mut(at)?.member.as_mut()
    }

    /// Likewise; it was seen in this pass.
    pub fn see(&mut self, at: usize, pass: u64) -> Option<&mut Member> {
        let member = self.slots.get_mut(at)?.member.as_mut()?;
        if self.seen.0 != pass {
            self.seen = (pass, 0);
        }
        self.seen.1 += usize::from(member.seen != pass);
        member.seen = pass;
        Some(member)
    }

    /// The one of this name; `None`, if it is gone, whoever has its slot by now.
    pub fn named(&mut self, conn: ConnId) -> Option<&mut Member> {
        let slot = self.slots.get_mut(conn.index as usize)?;
        let member = slot.member.as_mut();
        member.filter(|_| slot.generation == conn.generation)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.slots.iter().filter_map(|slot| slot.member.as_ref())
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        let slots = self.slots.iter_mut();
        slots.filter_map(|slot| slot.member.as_mut())
    }

    /// Forgets all that were last seen in another pass than this.
    pub fn keep_seen(&mut self, pass: u64) {
        // Mostly nobody has gone: then it walks over nobody.
        if self.seen == (pass, self.len()) {
            return;
        }
        for (slot, index) in self.slots.iter_mut().zip(0..) {
            if let Some(member) = slot.member.take_if(|member| member.seen != pass) {
                self.by_cookie.remove(&member.snapshot.cookie);
                self.free.push(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::snapshot;
    use super::*;

    #[test]
    fn a_name_is_of_one_socket_and_its_slot_is_used_again() {
        let mut members = Members::default();
        for cookie in 1..=3 {
            assert_eq!(members.find(cookie), None);
            let at = members.enter(snapshot(cookie));
            members.see(at, 1).expect("just now");
        }
        let second = members.find(2).expect("it is there");
        let name = members.at(second).expect("likewise").conn;
        for cookie in [1, 3] {
            let at = members.find(cookie).expect("whatever was found before");
            members.see(at, 2).expect("likewise");
        }
        members.keep_seen(2);
        assert_eq!((members.find(2), members.len()), (None, 2));
        assert!(members.named(name).is_none());
        assert_eq!(members.enter(snapshot(4)), second);
        assert!(members.named(name).is_none(), "the slot is another's");
        let cookies: Vec<u64> = members
            .iter()
            .map(|member| member.snapshot.cookie)
            .collect();
        assert_eq!(cookies, [1, 4, 3]);
    }
}
