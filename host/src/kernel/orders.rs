//! The orders for the program of a pass: a hash table in memory that both sides see (`orders` of `host/src/bpf/tune.bpf.c`).
//! Neither an order nor its removal takes a system call.

use std::io;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

use ackpace_host_base::failure::Failure;

use super::Order;

/// Orders of one pass, 64 bytes of memory each from the start. More: the rest are carried out in the next passes.
pub const ORDERS_MAX: usize = 65_536;
/// Slots of the table of orders (`ORDER_SLOTS`), half of which are empty.
const ORDER_SLOTS: usize = 2 * ORDERS_MAX;
/// Bits that tell where no order is (`ORDER_MARKS`), 64 KB. At most an eighth of them is set; the table tells the rest.
const ORDER_MARKS: usize = 8 * ORDERS_MAX;
/// Slots in which an order may be (`ORDER_PROBES`). All taken, in the whole table: it is carried out in one of the next passes.
const ORDER_PROBES: u32 = 16;

/// `struct order`.
#[repr(C)]
#[derive(Clone, Copy)]
struct OrderSlot {
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
    slots: Shared<OrderSlot>,
    /// A bit for each place where the search for an order may begin. The program reads it first: it is in the processor's
    /// caches, and the table is not.
    marks: Shared<u64>,
    /// How many slots are in use, less one. 0: there is no order.
    mask: u32,
}

impl Orders {
    /// The memory of these maps.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn of(slots: RawFd, marks: RawFd) -> Result<Orders, Failure> {
        let shared = libc::MAP_SHARED;
        Ok(Orders {
            slots: Shared::mapped(slots, shared, ORDER_SLOTS)?,
            marks: Shared::mapped(marks, shared, ORDER_MARKS / 64)?,
            mask: 0,
        })
    }

    /// What the program is told: 0, or the size of the part that is in use, less one.
    pub fn mask(&self) -> u32 {
        self.mask
    }

    /// These orders and no others, [`ORDERS_MAX`] at most. The part in use is half empty at least, and grows until each order has
    /// a slot. An order is left out only if the whole table has none for it: its socket is as one that is gone.
    pub fn set(&mut self, orders: &[Order]) {
        if orders.is_empty() {
            return self.clear();
        }
        let orders = &orders[..orders.len().min(ORDERS_MAX)];
        let mut slots = (2 * orders.len()).next_power_of_two();
        while self.fill(orders, slots as u32 - 1) < orders.len() && slots < ORDER_SLOTS {
            slots *= 2;
        }
    }

    /// These orders and no others, with this mask. How many found a slot.
    fn fill(&mut self, orders: &[Order], mask: u32) -> usize {
        self.clear();
        self.mask = mask;
        let mut filled = 0;
        for order in orders {
            let from = place(order.cookie);
            let mut free = (0..ORDER_PROBES).map(|probe| from.wrapping_add(probe) & mask);
            if let Some(at) = free.find(|at| self.slots.read(*at as usize).cookie == 0) {
                self.slots.write(at as usize, slot(order));
                let (word, bit) = mark(from);
                self.marks.write(word, self.marks.read(word) | bit);
                filled += 1;
            }
        }
        filled
    }

    /// No orders.
    pub fn clear(&mut self) {
        if self.mask > 0 {
            self.slots.zero(self.mask as usize + 1);
            self.marks.zero(ORDER_MARKS / 64);
        }
        self.mask = 0;
    }
}

/// Memory of a map of the kernel's program, which reads it while this thread is in a system call, and never else.
struct Shared<T> {
    at: NonNull<T>,
    len: usize,
}

impl<T: Plain> Shared<T> {
    /// `len` values of this file.
    fn mapped(fd: RawFd, flags: libc::c_int, len: usize) -> Result<Shared<T>, Failure> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let len_bytes = len * size_of::<T>();
        // SAFETY: a new mapping, at an address that the kernel chooses; nothing else refers to it.
        let at = unsafe { libc::mmap(ptr::null_mut(), len_bytes, protection, flags, fd, 0) };
        let mapped = NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED);
        let at = mapped.ok_or_else(|| {
            let error = io::Error::last_os_error();
            Failure::runtime(format!("the memory of the program's orders: {error}"))
        })?;
        Ok(Shared { at, len })
    }

    fn read(&self, nth: usize) -> T {
        assert!(nth < self.len);
        // SAFETY: within the mapping, which starts on a page and was zero at first: zeros are a `Plain`.
        unsafe { self.at.add(nth).read() }
    }

    fn write(&mut self, nth: usize, value: T) {
        assert!(nth < self.len);
        // SAFETY: as in `read`.
        unsafe { self.at.add(nth).write(value) };
    }

    /// The first `len`.
    fn zero(&mut self, len: usize) {
        assert!(len <= self.len);
        // SAFETY: as in `read`.
        unsafe { ptr::write_bytes(self.at.as_ptr(), 0, len) };
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which nothing refers any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}

/// Numbers alone: zeros are one of these.
trait Plain: Copy {}
impl Plain for OrderSlot {}
impl Plain for u64 {}

/// Where the search for a cookie begins, before the mask. The kernel counts cookies up, so nobody chooses them, and any spread
/// will do: Fibonacci hashing.
fn place(cookie: u64) -> u32 {
    (cookie.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

/// The word of the marks, and the bit in it, of the place where a search begins.
fn mark(place: u32) -> (usize, u64) {
    let nth = place as usize % ORDER_MARKS;
    (nth / 64, 1 << (nth % 64))
}

fn slot(order: &Order) -> OrderSlot {
    let to = order.to.unwrap_or_default();
    OrderSlot {
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
        let (word, bit) = mark(place(cookie));
        if orders.marks.read(word) & bit == 0 {
            return None;
        }
        let at = |probe| {
            let at = place(cookie).wrapping_add(probe) & orders.mask();
            orders.slots.read(at as usize)
        };
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
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Orders {
            slots: Shared::mapped(-1, flags, ORDER_SLOTS).expect("8 MB at most"),
            marks: Shared::mapped(-1, flags, ORDER_MARKS / 64).expect("64 KB"),
            mask: 0,
        }
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

    /// These have their places side by side, in a table of twice as many slots.
    #[test]
    fn orders_whose_places_are_near_each_other_are_all_found() {
        let mut orders = empty();
        let near = (1..u64::MAX).filter(|cookie| place(*cookie) % 128 < 8);
        let all: Vec<Order> = near.take(60).map(|cookie| order((cookie, 1))).collect();
        orders.set(&all);
        assert!(orders.mask() > 127);
        assert!(
            all.iter()
                .all(|order| found(&orders, order.cookie).is_some())
        );
        // What only fits by more slots does not keep them.
        orders.set(&all[..1]);
        assert_eq!(orders.mask(), 1);
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
                prop_assert_eq!(there.len(), list.len());
            }
            orders.clear();
            prop_assert!((1..2_000).all(|cookie| found(&orders, cookie).is_none()));
        }
    }
}
