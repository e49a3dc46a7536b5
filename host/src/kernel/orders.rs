//! The orders for the program of a pass: a hash table in memory that both sides see (`orders` of `host/src/bpf/tune.bpf.c`).
//! Neither an order nor its removal takes a system call.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};

use libbpf_rs::MapCore;

use super::Order;
use crate::failure::Failure;
use crate::limits::{ORDER_PROBES, ORDER_SLOTS, ORDERS_MAX};

/// `struct order`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Slot {
    /// 0: nobody's.
    cookie: u64,
    give_back: u32,
    from_clamp: u32,
    from_lowat: u32,
    to_clamp: u32,
    to_lowat: u32,
    zero: u32,
}

/// The table.
pub struct Orders {
    slots: NonNull<Slot>,
    /// How many slots are in use, less one. 0: there is no order.
    mask: u32,
}

/// Memory of the table.
const BYTES: usize = ORDER_SLOTS * size_of::<Slot>();

impl Orders {
    /// The memory of this map.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn of(map: &impl MapCore) -> Result<Orders, Failure> {
        Orders::mapped(map.as_fd().as_raw_fd(), libc::MAP_SHARED)
    }

    fn mapped(fd: RawFd, flags: libc::c_int) -> Result<Orders, Failure> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses; nothing else refers to it.
        let at = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, flags, fd, 0) };
        let slots = NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED);
        let slots = slots.ok_or_else(|| {
            let error = io::Error::last_os_error();
            Failure::runtime(format!("the memory of the program's orders: {error}"))
        })?;
        Ok(Orders { slots, mask: 0 })
    }

    /// What the program is told: 0, or the size of the part that is in use, less one.
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// These orders and no others, [`ORDERS_MAX`] at most. One whose neighbourhood is full is left out: its socket is as one
    /// that is gone.
    pub fn set(&mut self, orders: &[Order]) {
        self.clear();
        if orders.is_empty() {
            return;
        }
        let orders = &orders[..orders.len().min(ORDERS_MAX)];
        // Half empty at least.
        self.mask = (2 * orders.len()).next_power_of_two() as u32 - 1;
        for order in orders {
            let from = place(order.cookie);
            let mut free = (0..ORDER_PROBES).map(|probe| from.wrapping_add(probe) & self.mask);
            if let Some(at) = free.find(|at| self.read(*at).cookie == 0) {
                self.write(at, slot(order));
            }
        }
    }

    /// No orders.
    pub fn clear(&mut self) {
        if self.mask > 0 {
            // SAFETY: as in `read`; zeros are a `Slot`.
            unsafe { ptr::write_bytes(self.slots.as_ptr(), 0, self.mask as usize + 1) };
        }
        self.mask = 0;
    }

    fn read(&self, at: u32) -> Slot {
        // SAFETY: `at` is `mask` at most, and that is below `ORDER_SLOTS`: it is within the mapping, which starts on a page and
        // was zero at first. The kernel's program only reads it, and only while this thread is in a system call.
        unsafe { self.slots.add(at as usize).read() }
    }

    fn write(&mut self, at: u32, slot: Slot) {
        // SAFETY: as in `read`.
        unsafe { self.slots.add(at as usize).write(slot) };
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which nothing refers any more.
        unsafe { libc::munmap(self.slots.as_ptr().cast(), BYTES) };
    }
}

/// Where the search for a cookie begins, before the mask. The kernel counts cookies up, so nobody chooses them, and any spread
/// will do: Fibonacci hashing.
fn place(cookie: u64) -> u32 {
    (cookie.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

fn slot(order: &Order) -> Slot {
    let to = order.to.unwrap_or_default();
    Slot {
        cookie: order.cookie,
        give_back: u32::from(order.to.is_none()),
        from_clamp: order.from.clamp_segments,
        from_lowat: order.from.lowat_bytes,
        to_clamp: to.clamp_segments,
        to_lowat: to.lowat_bytes,
        zero: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ackpace_core::sndbuf::outside::Setting;
    use proptest::prelude::*;

    use super::*;

    /// As `order_for` of `host/src/bpf/tune.bpf.c` finds it.
    fn found(orders: &Orders, cookie: u64) -> Option<u32> {
        let at = |probe| orders.read(place(cookie).wrapping_add(probe) & orders.mask());
        let slots = (0..ORDER_PROBES).filter(|_| orders.mask() > 0).map(at);
        let mut taken = slots.take_while(|slot| slot.cookie != 0);
        taken
            .find(|slot| slot.cookie == cookie)
            .map(|slot| slot.to_lowat)
    }

    fn order((cookie, lowat_bytes): (u64, u32)) -> Order {
        let to = Setting {
            clamp_segments: 7,
            lowat_bytes,
        };
        Order {
            cookie,
            from: Setting::default(),
            to: Some(to),
        }
    }

    fn empty() -> Orders {
        Orders::mapped(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS).expect("8 MB at most")
    }

    #[test]
    fn as_many_as_there_may_be_are_found() {
        let mut orders = empty();
        let all: Vec<Order> = (1..=ORDERS_MAX as u64 + 1).map(|n| order((n, 1))).collect();
        orders.set(&all);
        assert_eq!(orders.mask() as usize, ORDER_SLOTS - 1);
        let there = all
            .iter()
            .filter(|order| found(&orders, order.cookie).is_some());
        assert_eq!(there.count(), ORDERS_MAX);
    }

    proptest! {
        #[test]
        fn the_last_orders_are_found_and_no_others(lists in prop::collection::vec(prop::collection::btree_map(1..2_000u64, any::<u32>(), 0..300), 1..5)) {
            let mut orders = empty();
            for list in &lists {
                let all: Vec<Order> = list.clone().into_iter().map(order).collect();
                orders.set(&all);
                let there: BTreeMap<u64, u32> = (1..2_000).filter_map(|cookie| Some((cookie, found(&orders, cookie)?))).collect();
                prop_assert!(there.iter().all(|(cookie, to)| list.get(cookie) == Some(to)));
                // Few are left out, of those that many others are near to.
                prop_assert!(there.len() + list.len() / 50 >= list.len(), "{} of {}", there.len(), list.len());
            }
            orders.clear();
            prop_assert!((1..2_000).all(|cookie| found(&orders, cookie).is_none()));
        }
    }
}
