# Sums all result lines of `cargo test`; -v status=its exit code. Failures come late, where a log that is cut still has them; the
# closing line stands alone, last.
/^test result: / { passed += $4; failed += $6; skipped += $8; failing = 0 }
# libtest knows no skipping at run time: such a test passes and says `skipped: TEST: WHY`. It is counted as what it is.
/^skipped: / && !seen[$0]++ { print; skipped += 1; passed -= 1 }
/^failures:$/ { failing = 1 }
failing && /^---- .* stdout ----$/ { name = $2 }
# A panic says where, and in the next line why.
where { why[++whys] = "failed: " name ": " where ": " $0; where = name = "" }
failing && name && / panicked at / { where = $0; sub(/^.* panicked at /, "", where); sub(/:$/, "", where) }
END {
    for (i = 1; i <= whys; i++) print why[i]
    if (status != 0 && failed == 0) failed = 1 # did not build, or a test program died before its result line
    if (passed <= 0 && failed == 0) { print "no test was executed"; failed = 1 }
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit failed > 0
}
