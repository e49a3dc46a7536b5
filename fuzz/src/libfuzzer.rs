//! The entry point for libFuzzer. `ACKPACE_FUZZ_TARGET` names the target. `fuzz/run.sh` builds it with coverage
//! counters, on the stable compiler.
#![no_main]

use std::sync::OnceLock;

static TARGET: OnceLock<ackpace_fuzz::Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let target = TARGET.get_or_init(|| {
        let name = std::env::var("ACKPACE_FUZZ_TARGET").unwrap_or_default();
        ackpace_fuzz::find(&name).expect("ACKPACE_FUZZ_TARGET names a target")
    });
    (target.run)(data);
});
