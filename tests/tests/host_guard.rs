//! `ackpace-host receive guard` where the kernel has no sched_ext. `receive/guest/` runs the scheduler.

use std::fs;

use ackpace_tests::{host, needs_root, skip};

#[test]
fn it_is_refused_where_the_kernel_has_no_sched_ext() {
    if !needs_root("BPF") {
        return;
    }
    if fs::exists("/sys/kernel/sched_ext").unwrap_or(true) {
        return skip("this kernel has sched_ext; receive/guest/ runs the scheduler");
    }
    let refused = host("receive guard --port 80");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let says = "has no sched_ext (CONFIG_SCHED_CLASS_EXT)";
    assert!(refused.err.contains(says), "{refused:?}");
    assert!(refused.err.contains("'receive advise'"), "{refused:?}");
    let told = host("doctor");
    assert!(told.out.contains(says), "{told:?}");
    assert_eq!(told.code, Some(1), "something is lost");
}
