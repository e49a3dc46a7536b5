//! The drive's own cache: segments that hold what was read, and the read-ahead that fills one of them.
//!
//! After a read the head stays on the track and reads on, up to a segment's length beyond the host's last byte. A host
//! that reads on finds its bytes in the segment or under the head.

use super::geometry::Geometry;
use super::request::Request;

/// How the cache serves a read without moving the arm. [`DriveCache::find`] changes nothing; [`DriveCache::take`] applies
/// the hit.
#[derive(Clone, Copy, Debug)]
pub struct CacheHit {
    /// When the last byte is in the cache; in the past if it is there already.
    pub ready_ns: u64,
    /// When the first byte passes under the head, for a read that has to wait for it.
    pub under_head_ns: u64,
    /// When the head resumes reading, if it had stopped at the end of the read-ahead.
    pub resumes_ns: u64,
    segment: usize,
    stream: Option<Stream>,
}

/// The read-ahead under way, or stopped at its limit. The head passes `from_ns` at `since_ns`.
#[derive(Clone, Copy, Debug)]
struct Stream {
    segment: usize,
    from_ns: u64,
    since_ns: u64,
    limit_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    start_bytes: u64,
    end_bytes: u64,
    used: u64,
}

/// The segments and the position of the head.
#[derive(Clone, Debug)]
pub struct DriveCache {
    segments: Vec<Segment>,
    segment_bytes: u64,
    size_bytes: u64,
    stream: Option<Stream>,
    head_ns: u64,
    uses: u64,
}

impl DriveCache {
    /// Empty segments, and the head at offset 0. Without segments every read is a miss.
    pub fn new(segments: usize, segment_bytes: u64, size_bytes: u64) -> Self {
        Self {
            segments: vec![Segment::default(); if segment_bytes == 0 { 0 } else { segments }],
            segment_bytes,
            size_bytes,
            stream: None,
            head_ns: 0,
            uses: 0,
        }
    }

    /// The place of the head at `now_ns`.
    pub fn head_ns(&self, geometry: &Geometry, now_ns: u64) -> u64 {
        match self.stream {
            None => self.head_ns,
            Some(stream) => stream.place_ns(geometry, now_ns),
        }
    }

    /// How the cache can serve a read; `None`: the arm has to move.
    pub fn find(&self, geometry: &Geometry, request: &Request, now_ns: u64) -> Option<CacheHit> {
        if let Some(stream) = &self.stream {
            let start_bytes = self.segments[stream.segment].start_bytes;
            let read_bytes = geometry.offset_bytes(stream.place_ns(geometry, now_ns));
            let kept_bytes = start_bytes.max(read_bytes.saturating_sub(self.segment_bytes));
            if (kept_bytes..=stream.limit_bytes).contains(&request.offset_bytes) {
                return Some(self.follow(stream, geometry, request, now_ns));
            }
        }
        let inactive = |nth: &usize| self.stream.is_none_or(|stream| stream.segment != *nth);
        let mut others = (0..self.segments.len()).filter(inactive);
        let segment = others.find(|nth| {
            let segment = &self.segments[*nth];
            segment.start_bytes <= request.offset_bytes && request.end_bytes() <= segment.end_bytes
        })?;
        Some(CacheHit {
            ready_ns: now_ns,
            under_head_ns: now_ns,
            resumes_ns: now_ns,
            segment,
            stream: None,
        })
    }

    /// Applies a hit that the disk serves.
    pub fn take(&mut self, hit: &CacheHit) {
        self.uses += 1;
        self.segments[hit.segment].used = self.uses;
        if hit.stream.is_some() {
            self.stream = hit.stream;
        }
    }

    /// Moves the arm to a read. It leaves its track at `now_ns`, and the first byte passes the head at `under_head_ns`.
    /// Behind the read, the head reads on.
    pub fn read(
        &mut self,
        geometry: &Geometry,
        request: &Request,
        now_ns: u64,
        under_head_ns: u64,
    ) {
        self.stop(geometry, now_ns);
        self.head_ns = geometry.place_ns(request.end_bytes());
        let oldest = (0..self.segments.len()).min_by_key(|nth| self.segments[*nth].used);
        let Some(segment) = oldest else { return };
        self.uses += 1;
        self.segments[segment] = Segment {
            start_bytes: request.offset_bytes,
            end_bytes: request.offset_bytes,
            used: self.uses,
        };
        self.stream = Some(Stream {
            segment,
            from_ns: geometry.place_ns(request.offset_bytes),
            since_ns: under_head_ns,
            limit_bytes: self.limit_bytes(request),
        });
    }

    /// Moves the arm to the end of `request`, without read-ahead: a write, or a read that failed.
    pub fn disturb(&mut self, geometry: &Geometry, request: &Request, now_ns: u64) {
        self.stop(geometry, now_ns);
        self.head_ns = geometry.place_ns(request.end_bytes());
        self.forget(request.offset_bytes, request.end_bytes());
    }

    /// Drops all segments that hold a byte of the range.
    pub fn forget(&mut self, start_bytes: u64, end_bytes: u64) {
        for segment in &mut self.segments {
            if segment.start_bytes < end_bytes && start_bytes < segment.end_bytes {
                *segment = Segment::default();
            }
        }
    }

    /// Ends the read-ahead. Its segment keeps the last bytes that were read.
    pub fn stop(&mut self, geometry: &Geometry, now_ns: u64) {
        let Some(stream) = self.stream.take() else {
            return;
        };
        self.head_ns = stream.place_ns(geometry, now_ns);
        let segment = &mut self.segments[stream.segment];
        let end_bytes = geometry.offset_bytes(self.head_ns).max(segment.start_bytes);
        segment.end_bytes = end_bytes;
        segment.start_bytes = segment
            .start_bytes
            .max(end_bytes.saturating_sub(self.segment_bytes));
    }

    fn follow(
        &self,
        stream: &Stream,
        geometry: &Geometry,
        request: &Request,
        now_ns: u64,
    ) -> CacheHit {
        let mut next = *stream;
        let limit_ns = geometry.place_ns(stream.limit_bytes);
        if stream.place_ns(geometry, now_ns) >= limit_ns && stream.limit_bytes < self.size_bytes {
            next.from_ns = limit_ns;
            next.since_ns = now_ns + geometry.rotation_ns(limit_ns, now_ns);
        }
        next.limit_bytes = stream.limit_bytes.max(self.limit_bytes(request));
        // A read-ahead that never stopped passed every place up to the limit without a pause.
        let passes_ns = |offset_bytes: u64| {
            let place_ns = geometry.place_ns(offset_bytes);
            match place_ns.checked_sub(next.from_ns) {
                Some(ahead_ns) => next.since_ns + ahead_ns,
                None => next
                    .since_ns
                    .saturating_sub(next.from_ns - place_ns)
                    .min(now_ns),
            }
        };
        CacheHit {
            ready_ns: passes_ns(request.end_bytes()),
            under_head_ns: passes_ns(request.offset_bytes),
            resumes_ns: next.since_ns,
            segment: stream.segment,
            stream: Some(next),
        }
    }

    fn limit_bytes(&self, request: &Request) -> u64 {
        (request.end_bytes() + self.segment_bytes).min(self.size_bytes)
    }
}

impl Stream {
    fn place_ns(&self, geometry: &Geometry, now_ns: u64) -> u64 {
        let reached_ns = self.from_ns + now_ns.saturating_sub(self.since_ns);
        reached_ns.min(geometry.place_ns(self.limit_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::scsi_2003;
    use super::super::request::Kind;
    use super::*;

    const KB: u64 = 1 << 10;

    fn read(offset_bytes: u64, len_bytes: u64) -> Request {
        Request {
            id: 0,
            offset_bytes,
            len_bytes,
            kind: Kind::Read,
        }
    }

    fn disk() -> (Geometry, DriveCache) {
        let profile = scsi_2003();
        let cache = DriveCache::new(2, 512 * KB, profile.size_bytes);
        (Geometry::new(&profile), cache)
    }

    #[test]
    fn the_head_reads_on_for_a_segment_and_waits_a_turn_once_it_has_stopped() {
        let (geometry, mut cache) = disk();
        cache.read(&geometry, &read(0, 64 * KB), 0, 0);
        let there_ns = geometry.place_ns(128 * KB);
        let next = read(64 * KB, 64 * KB);
        let hit = cache.find(&geometry, &next, there_ns - 1).unwrap();
        assert_eq!(hit.ready_ns, there_ns, "it passes the head just then");
        let late_ns = geometry.place_ns(576 * KB) + 1;
        let hit = cache.find(&geometry, &next, late_ns).unwrap();
        assert!(hit.ready_ns <= late_ns);
        cache.take(&hit);
        let far = cache.find(&geometry, &read(600 * KB, KB), late_ns).unwrap();
        let turn_ns = geometry.revolution_ns - 1;
        let ahead_ns = geometry.place_ns(601 * KB) - geometry.place_ns(576 * KB);
        assert_eq!(far.ready_ns, late_ns + turn_ns + ahead_ns);
    }

    #[test]
    fn an_old_segment_answers_until_the_least_used_one_is_needed() {
        let (geometry, mut cache) = disk();
        cache.read(&geometry, &read(0, 64 * KB), 0, 0);
        cache.read(&geometry, &read(1 << 30, KB), 1_000_000_000, 1_010_000_000);
        let old = read(100 * KB, 400 * KB);
        let hit = cache.find(&geometry, &old, 2_000_000_000).unwrap();
        assert_eq!(hit.ready_ns, 2_000_000_000);
        cache.read(&geometry, &read(1 << 31, KB), 2_000_000_000, 2_010_000_000);
        assert!(cache.find(&geometry, &old, 2_000_000_000).is_none());
    }

    #[test]
    fn a_write_empties_what_it_touches() {
        let (geometry, mut cache) = disk();
        cache.read(&geometry, &read(0, 64 * KB), 0, 0);
        cache.disturb(&geometry, &read(10 * KB, KB), 1_000_000_000);
        assert!(cache.find(&geometry, &read(0, KB), 2_000_000_000).is_none());
    }
}
