# Reads what `cargo test` prints and shows: a line per test program that ran tests, failures whole, compiler errors whole.
/^ +Running / {
    program = $NF # (target/debug/deps/name-hash)
    sub(/^.*\//, "", program)
    sub(/-[0-9a-f]+\)$/, "", program)
    next
}
/^ +Doc-tests / { program = $NF " (examples in docs)"; next }
/^failures:$/ { failing = 1 }
/^test result: / {
    failing = 0
    if ($4 + $6 + $8 > 0) printf "  %s: %d passed%s%s\n", program, $4, $6 ? ", " $6 " FAILED" : "", $8 ? ", " $8 " ignored" : ""
    next
}
# An error or warning of the compiler runs to the next empty line.
/^(error|warning)(\[|:)/ { compiler = 1 }
/^$/ { if (compiler) print ""; compiler = 0 }
failing || compiler { print }
# A test program that died (signal, abort) has no result line.
/^ +process didn't exit successfully/ || /^error: test failed/ { if (!failing && !compiler) print }
