//! The connections in the pool, by worker and slot: what a division asks of each, and apart from that what is known of it.
//! A division walks over all of them, and reads no more than it needs.
//!
//! Slots lie in pages, so the table grows without being copied, and takes memory where workers have connections.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Place;
use super::member::Member;
use crate::conn::ConnId;
use crate::sndbuf::reading::Known;

/// Slots of a page.
const PAGE: usize = 64;

/// Memory of a slot.
pub(super) const SLOT_BYTES: usize = size_of::<Option<Member>>() + size_of::<Option<Known>>();

/// A part of a worker's slots.
#[derive(Debug)]
struct Page {
    /// Who has a slot of it, and what is known of each.
    members: Box<[Option<Member>; PAGE]>,
    known: Box<[Option<Known>; PAGE]>,
}

impl Page {
    fn empty() -> Page {
        Page {
            members: Box::new([const { None }; PAGE]),
            known: Box::new([const { None }; PAGE]),
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Members {
    /// The pages of each worker, by its slots; `None`: nobody was ever there.
    workers: Vec<Vec<Option<Page>>>,
}

impl Members {
    /// Nobody yet, of so many workers.
    pub fn new(workers: u16) -> Members {
        Members {
            workers: (0..workers).map(|_| Vec::new()).collect(),
        }
    }

    /// The member for this connection, with what is known of it; `None` if it has none, or its slot has another user.
    pub fn named(&mut self, worker: u16, conn: ConnId) -> Option<(&mut Member, &mut Known)> {
        let (member, known) = self.slot((worker, conn.index))?;
        let member = member.as_mut().filter(|member| member.conn == conn)?;
        Some((member, known.as_mut()?))
    }

    /// The one in this slot.
    pub fn at(&mut self, place: Place) -> Option<&mut Member> {
        self.slot(place)?.0.as_mut()
    }

    /// One more, in the place of whoever had its slot before. That of a worker that is none is not kept.
    pub fn insert(&mut self, place: Place, member: Member, known: Known) {
        let Some(pages) = self.workers.get_mut(usize::from(place.0)) else {
            return;
        };
        let page = place.1 as usize / PAGE;
        if pages.len() <= page {
            pages.resize_with(page + 1, || None);
        }
        pages[page].get_or_insert_with(Page::empty);
        if let Some(slot) = self.slot(place) {
            (*slot.0, *slot.1) = (Some(member), Some(known));
        }
    }

    /// All, by worker and slot.
    pub fn iter(&self) -> impl Iterator<Item = (Place, &Member)> {
        let workers = self.workers.iter().zip(0..);
        workers.flat_map(|(pages, worker)| {
            let pages = pages.iter().zip(0..);
            pages.flat_map(move |(page, nth)| {
                let members = page.iter().flat_map(|page| page.members.iter());
                let slots = members.zip(nth * PAGE as u32..);
                slots.filter_map(move |(member, slot)| Some(((worker, slot), member.as_ref()?)))
            })
        })
    }

    /// Those of a worker, by slot.
    pub fn of_worker(&mut self, worker: u16) -> impl Iterator<Item = &mut Member> {
        let pages = self.workers.get_mut(usize::from(worker));
        let pages = pages.into_iter().flatten().flatten();
        pages.flat_map(|page| page.members.iter_mut().flatten())
    }

    /// Whether the estimate of the one in this slot counts.
    #[cfg(test)]
    pub fn state(&mut self, place: Place) -> crate::sndbuf::EstimateState {
        let known = self.slot(place).and_then(|slot| slot.1.as_ref());
        known.expect("it is there").state()
    }

    fn slot(&mut self, place: Place) -> Option<(&mut Option<Member>, &mut Option<Known>)> {
        let pages = self.workers.get_mut(usize::from(place.0))?;
        let (page, at) = (place.1 as usize / PAGE, place.1 as usize % PAGE);
        let page = pages.get_mut(page)?.as_mut()?;
        Some((&mut page.members[at], &mut page.known[at]))
    }
}
