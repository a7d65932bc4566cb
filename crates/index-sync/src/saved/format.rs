//! An index to bytes and back.
//!
//! ```text
//! head   magic 8 │ version 4 │ identity 16 │ nonce 24 │ saved at 8 (seconds since 1970, f64)
//! body   runs      count, each: block size, keys
//!        replicas  count, each: endpoint, models, groups, places
//!                  a place: group, tier, in doubt for (8, ns; all ones: confirmed),
//!                           rows of blocks: run, offset, one handle per block
//! tag    16
//! ```
//!
//! Numbers are little-endian: counts and lengths have 4 bytes, keys and handles 8. Some 8 bytes go
//! for each block and 8 for each holding of one.
//!
//! Reading checks the tag before anything of the body is believed; and even a body with a right
//! tag is read with care: no count allocates more than the bytes behind it account for.

use std::io::{self, Write};
use std::time::Duration;

use headstart_core::event::{Attention, CacheGroup};
use headstart_core::{ReplicaId, RouteKey, Tier};
use headstart_router::index::dump::{BlockDump, PlaceDump, ReplicaDump, RunDump};

use super::seal::{IDENTITY_BYTES, NONCE_BYTES, Seal, TAG_BYTES};

const MAGIC: [u8; 8] = *b"HSINDEX\n";

/// Format version that is written, and the only one that is read. Raise it with every change of
/// this layout, of the router's keys, or of its handles for engines' hashes.
pub const VERSION: u32 = 3;

/// Stands where what a place holds was not in doubt.
const CONFIRMED: u64 = u64::MAX;

const HEAD_BYTES: usize = MAGIC.len() + 4 + IDENTITY_BYTES + NONCE_BYTES + 8;

/// Longest name of an endpoint or model: far beyond any address.
const TEXT_BYTES_MAX: usize = 4096;

/// Blocks of an index, and the replicas that held them.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedIndex {
    /// When, seconds since 1970.
    pub saved_at: f64,
    /// The blocks.
    pub runs: Vec<RunDump>,
    /// Replicas and the blocks that each held.
    pub replicas: Vec<SavedReplica>,
}

/// One replica, known by its address.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedReplica {
    /// Address at which it answers and publishes events.
    pub endpoint: String,
    /// The models that it said it serves, sorted; empty where it did not say.
    pub models: Vec<String>,
    /// Blocks that it held. The id inside was valid only at that time.
    pub held: ReplicaDump,
}

/// Why a file was not used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is something else.
    #[error("it is no saved index")]
    NotOurs,
    /// Another version of the program wrote it.
    #[error("it has version {0}, this program reads {VERSION}")]
    OtherVersion(u32),
    /// The keys in it mean nothing here.
    #[error("it was saved with another secret, or for another model")]
    OtherSecret,
    /// It is not what was written.
    #[error("it is damaged")]
    Damaged,
    /// Its replicas hold other things by now.
    #[error("it is {age_s:.0} s old, and after {limit_s} s nothing of it would count")]
    TooOld {
        /// Its age, seconds.
        age_s: f64,
        /// The limit, seconds.
        limit_s: u64,
    },
    /// Its age is unknown.
    #[error("it is from the future: the clock was set back by {ahead_s:.0} s or more")]
    FromTheFuture {
        /// Seconds by which the file's time is ahead of the clock.
        ahead_s: f64,
    },
    /// It is larger than any that is written.
    #[error("it has {0} bytes, more than any saved index")]
    TooLarge(u64),
    /// The index did not take it.
    #[error(transparent)]
    Dump(#[from] headstart_router::index::DumpError),
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
}

impl SavedIndex {
    /// Writes it.
    ///
    /// # Errors
    /// The writer's.
    pub fn write(
        &self,
        to: &mut impl Write,
        seal: &Seal,
        nonce: [u8; NONCE_BYTES],
    ) -> io::Result<()> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend(MAGIC);
        head.extend(VERSION.to_le_bytes());
        head.extend(seal.identity);
        head.extend(nonce);
        head.extend(self.saved_at.to_le_bytes());
        let mut body = self.body()?;
        let tag = seal.close(nonce, &head, &mut body);
        let tag = tag.ok_or(io::ErrorKind::FileTooLarge)?;
        [&head, &body, &tag[..]].into_iter().try_for_each(|part| to.write_all(part))
    }

    fn body(&self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        put_count(&mut out, self.runs.len())?;
        for run in &self.runs {
            out.extend(run.block_size.to_le_bytes());
            put_count(&mut out, run.keys.len())?;
            out.extend(run.keys.iter().flat_map(|key| key.0.to_le_bytes()));
        }
        put_count(&mut out, self.replicas.len())?;
        for replica in &self.replicas {
            put_replica(&mut out, replica)?;
        }
        Ok(out)
    }

    /// Reads what [`Self::write`] wrote with the same seal.
    ///
    /// # Errors
    /// When it is not exactly that.
    pub fn read(mut file: Vec<u8>, seal: &Seal) -> Result<Self, FileError> {
        let mut head = ByteReader(&file);
        if head.array().map_err(|_| FileError::NotOurs)? != MAGIC {
            return Err(FileError::NotOurs);
        }
        let version = head.u32()?;
        // The layout of everything that follows depends on the version.
        if version != VERSION {
            return Err(FileError::OtherVersion(version));
        }
        // Compared before the tag, which fails as well then but would say that the file is damaged.
        if head.array()? != seal.identity {
            return Err(FileError::OtherSecret);
        }
        let nonce = head.array()?;
        let saved_at = f64::from_le_bytes(head.array()?);
        let body_bytes = head.0.len().checked_sub(TAG_BYTES);
        let end = HEAD_BYTES + body_bytes.ok_or(FileError::Damaged)?;
        let tag = ByteReader(&file[end..]).array()?;
        let (head, rest) = file.split_at_mut(HEAD_BYTES);
        let sealed = &mut rest[..end - HEAD_BYTES];
        // The tag covers the head too, so `saved_at` is as written. Arithmetic on ages needs a
        // finite one.
        if !seal.open(nonce, head, sealed, tag) || !saved_at.is_finite() {
            return Err(FileError::Damaged);
        }
        let mut body = ByteReader(sealed);
        let saved = Self {
            saved_at,
            runs: body.list(8, ByteReader::run)?,
            replicas: body.list(16, ByteReader::replica)?,
        };
        // Bytes that are left over mean that the counts were not those of the writer.
        body.end()?;
        Ok(saved)
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) -> io::Result<()> {
    let count = u32::try_from(count).map_err(|_| io::ErrorKind::FileTooLarge)?;
    out.extend(count.to_le_bytes());
    Ok(())
}

fn put_text(out: &mut Vec<u8>, text: &str) -> io::Result<()> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    put_count(out, text.len())?;
    out.extend(text.as_bytes());
    Ok(())
}

fn put_replica(out: &mut Vec<u8>, replica: &SavedReplica) -> io::Result<()> {
    put_text(out, &replica.endpoint)?;
    put_count(out, replica.models.len())?;
    replica.models.iter().try_for_each(|model| put_text(out, model))?;
    put_count(out, replica.held.groups.len())?;
    for (group, block_size) in &replica.held.groups {
        let (kind, window) = match group.attention {
            Attention::Full => (0, 0),
            Attention::Window { tokens } => (1, tokens),
            Attention::State => (2, 0),
        };
        out.extend([group.index, kind]);
        for number in [window, group.lookahead, *block_size] {
            out.extend(number.to_le_bytes());
        }
    }
    put_count(out, replica.held.places.len())?;
    replica.held.places.iter().try_for_each(|place| put_place(out, place))
}

fn put_place(out: &mut Vec<u8>, place: &PlaceDump) -> io::Result<()> {
    let tier = match place.tier {
        Tier::Device => 0,
        Tier::Host => 1,
        Tier::Disk => 2,
        Tier::Remote => 3,
    };
    out.extend([place.group, tier]);
    // A doubt of 584 years must not become the mark for no doubt.
    let nanos = |age: Duration| u64::try_from(age.as_nanos()).unwrap_or(CONFIRMED - 1);
    out.extend(place.doubtful_for.map_or(CONFIRMED, nanos).to_le_bytes());
    // Blocks of a prompt lie in a row, so most blocks cost one handle and no position.
    let is_next =
        |a: &BlockDump, b: &BlockDump| (b.run, Some(b.offset)) == (a.run, a.offset.checked_add(1));
    put_count(out, place.blocks.chunk_by(is_next).count())?;
    for row in place.blocks.chunk_by(is_next) {
        out.extend(row[0].run.to_le_bytes());
        out.extend(row[0].offset.to_le_bytes());
        put_count(out, row.len())?;
        out.extend(row.iter().flat_map(|block| block.handle.to_le_bytes()));
    }
    Ok(())
}

/// Reader of the remaining bytes.
struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], FileError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(FileError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FileError> {
        Ok(*self.take(N)?.first_chunk().expect("that many bytes were taken"))
    }

    fn u8(&mut self) -> Result<u8, FileError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, FileError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, FileError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a count of items of at least `bytes_each` bytes; fails if the rest is too short.
    fn count(&mut self, bytes_each: usize) -> Result<usize, FileError> {
        let count = self.u32()? as usize;
        // A count is believed only as far as there are bytes, so it is safe to allocate for.
        match count.checked_mul(bytes_each) {
            Some(bytes) if bytes <= self.0.len() => Ok(count),
            _ => Err(FileError::Damaged),
        }
    }

    fn list<T>(
        &mut self,
        bytes_each: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, FileError>,
    ) -> Result<Vec<T>, FileError> {
        let count = self.count(bytes_each)?;
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(item(self)?);
        }
        Ok(list)
    }

    fn text(&mut self) -> Result<String, FileError> {
        let length = self.count(1)?;
        let bytes = self.take(length)?.to_vec();
        String::from_utf8(bytes).map_err(|_| FileError::Damaged)
    }

    fn run(&mut self) -> Result<RunDump, FileError> {
        Ok(RunDump {
            block_size: self.u32()?,
            keys: self.list(8, |reader| reader.u64().map(RouteKey))?,
        })
    }

    fn replica(&mut self) -> Result<SavedReplica, FileError> {
        Ok(SavedReplica {
            endpoint: self.text()?,
            models: self.list(4, Self::text)?,
            held: ReplicaDump {
                // Numbers change with the configuration. The keeper finds the replica by its
                // endpoint.
                replica: ReplicaId(0),
                groups: self.list(14, Self::group)?,
                places: self.list(14, Self::place)?,
            },
        })
    }

    fn group(&mut self) -> Result<(CacheGroup, u32), FileError> {
        let (index, kind) = (self.u8()?, self.u8()?);
        let tokens = self.u32()?;
        let attention = match kind {
            0 => Attention::Full,
            1 => Attention::Window { tokens },
            2 => Attention::State,
            _ => return Err(FileError::Damaged),
        };
        let group = CacheGroup { index, attention, lookahead: self.u32()? };
        Ok((group, self.u32()?))
    }

    fn place(&mut self) -> Result<PlaceDump, FileError> {
        let group = self.u8()?;
        let tier = match self.u8()? {
            0 => Tier::Device,
            1 => Tier::Host,
            2 => Tier::Disk,
            3 => Tier::Remote,
            _ => return Err(FileError::Damaged),
        };
        let doubt = Some(self.u64()?).filter(|&nanos| nanos != CONFIRMED);
        let mut blocks = Vec::new();
        for _ in 0..self.count(12)? {
            let (run, first) = (self.u32()?, self.u32()?);
            let count = self.count(8)?;
            for at in 0..count {
                blocks.push(BlockDump {
                    run,
                    // A hostile offset must not wrap around to another block of the run.
                    offset: first.checked_add(at as u32).ok_or(FileError::Damaged)?,
                    handle: self.u64()?,
                });
            }
        }
        Ok(PlaceDump { group, tier, doubtful_for: doubt.map(Duration::from_nanos), blocks })
    }

    fn end(&self) -> Result<(), FileError> {
        match self.0 {
            [] => Ok(()),
            _ => Err(FileError::Damaged),
        }
    }
}

#[cfg(test)]
mod tests;
