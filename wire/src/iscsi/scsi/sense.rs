//! Sense data: why a command failed (SPC-5 section 4.4), and what follows from it.

use std::fmt;

/// Sense key, additional code and its qualifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sense {
    /// The sense key, 4 bits.
    pub key: u8,
    /// The additional sense code.
    pub code: u8,
    /// Its qualifier.
    pub qualifier: u8,
}

/// What is to be done about a command that was refused with sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Cure {
    /// Nothing: it was carried out after all.
    Done,
    /// Repeat it at once: something about the unit changed before it was begun.
    Repeat,
    /// Repeat it later.
    Wait,
    /// Give up.
    GiveUp,
}

impl Sense {
    /// Reads sense data in both forms, fixed and with descriptors; `None`: it is neither, or too short.
    pub fn parse(data: &[u8]) -> Option<Sense> {
        let at = |at: usize| data.get(at).copied();
        match at(0)? & 0x7f {
            0x70 | 0x71 => Some(Sense {
                key: at(2)? & 0x0f,
                code: at(12).unwrap_or(0),
                qualifier: at(13).unwrap_or(0),
            }),
            0x72 | 0x73 => Some(Sense {
                key: at(1)? & 0x0f,
                code: at(2)?,
                qualifier: at(3)?,
            }),
            _ => None,
        }
    }

    pub(in super::super) fn cure(&self) -> Cure {
        match (self.key, self.code) {
            (0x0 | 0x1, _) => Cure::Done,
            (0x2, 0x3a) => Cure::GiveUp, // no medium
            (0x2 | 0xb, _) => Cure::Wait,
            (0x6, _) => Cure::Repeat,
            _ => Cure::GiveUp,
        }
    }

    /// The unit has another size now.
    pub fn is_capacity_changed(&self) -> bool {
        (self.key, self.code, self.qualifier) == (0x6, 0x2a, 0x09)
    }

    /// A write to a unit that lets nobody write.
    pub fn is_write_protected(&self) -> bool {
        self.key == 0x7 && !self.is_full()
    }

    /// A unit of thin provisioning has no room left.
    pub fn is_full(&self) -> bool {
        (self.key, self.code, self.qualifier) == (0x7, 0x27, 0x07)
    }

    /// A block behind the end of the unit.
    pub fn is_out_of_range(&self) -> bool {
        (self.key, self.code) == (0x5, 0x21)
    }

    /// There is no such unit.
    pub fn is_no_unit(&self) -> bool {
        (self.key, self.code) == (0x5, 0x25)
    }
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KEYS: [&str; 16] = [
            "no sense",
            "recovered error",
            "not ready",
            "medium error",
            "hardware error",
            "illegal request",
            "unit attention",
            "data protect",
            "blank check",
            "vendor specific",
            "copy aborted",
            "aborted command",
            "reserved",
            "volume overflow",
            "miscompare",
            "completed",
        ];
        let Sense {
            key,
            code,
            qualifier,
        } = *self;
        let name = KEYS[usize::from(key & 0x0f)];
        write!(f, "{name} ({key:x}/{code:02x}/{qualifier:02x})")
    }
}
