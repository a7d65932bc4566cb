//! MessagePack, read where it lies: a place in the payload that moves forward.
//!
//! Nothing is copied and nothing recurses. A text, a run of bytes, an array or a map is a piece of
//! the payload; nested values are read on demand. Skipping counts the values still to come, so
//! nesting costs neither memory nor stack.
//!
//! Invariant: an array or a map that is handed out as a [`Value`] is complete. A header that
//! claims more elements than bytes are left is refused at once, so a claimed length may be
//! allocated for: each element takes a byte at least.
//!
//! It does not know what an event is. The one byte that MessagePack never uses is read as nil.
//!
//! Source: the MessagePack specification.

/// The payload ends in the middle of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CutOff;

/// Bytes of a value that begins with a byte, where that byte alone tells; otherwise 0. Whether the
/// next token takes three bytes or five cannot be predicted, so it is looked up.
const SIZES: [u8; 256] = {
    let mut sizes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        sizes[byte] = match byte {
            0x00..=0x7f | 0xc0..=0xc3 | 0xe0..=0xff => 1,
            0xa0..=0xbf => 1 + (byte as u8 & 0x1f),
            0xca | 0xce | 0xd2 => 5,
            0xcb | 0xcf | 0xd3 => 9,
            0xcc | 0xd0 => 2,
            0xcd | 0xd1 | 0xd4 => 3,
            0xd5 => 4,
            0xd6 => 6,
            0xd7 => 10,
            0xd8 => 18,
            // Headers of arrays, maps and long texts: their length is in the bytes that follow.
            _ => 0,
        };
        byte += 1;
    }
    sizes
};

/// A place in a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

/// Start of a value: the whole value, or the number of elements or pairs of an array or map.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueHead<'a> {
    Whole(Value<'a>),
    Array(usize),
    Map(usize),
}

/// One value. Texts are not checked to be UTF-8.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    Nil,
    Unsigned(u64),
    /// Below zero.
    Signed(i64),
    Float(f64),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    Array(Items<'a>),
    /// Keys and values in turn.
    Map(Items<'a>),
    /// A truth value, or an extension.
    Other,
}

/// The elements of an array, or the keys and values of a map, all of which are there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items<'a> {
    cursor: Cursor<'a>,
    left: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }

    /// Bytes behind this place.
    pub(super) fn num_left(&self) -> usize {
        self.rest.len()
    }

    /// Reads the beginning of a value.
    #[inline]
    pub(super) fn head(&mut self) -> Result<ValueHead<'a>, CutOff> {
        let value = match self.byte()? {
            byte @ 0x00..=0x7f => Value::Unsigned(u64::from(byte)),
            byte @ 0x80..=0x8f => return self.map(usize::from(byte & 0x0f)),
            byte @ 0x90..=0x9f => return self.array(usize::from(byte & 0x0f)),
            byte @ 0xa0..=0xbf => Value::Text(self.take(usize::from(byte & 0x1f))?),
            // 0xc1 is the byte that MessagePack never uses. An engine that sends it loses this
            // value only.
            0xc0 | 0xc1 => Value::Nil,
            0xc2 | 0xc3 => Value::Other,
            byte @ 0xc4..=0xc6 => Value::Bytes(self.sized(byte - 0xc4)?),
            byte @ 0xc7..=0xc9 => self.extension(byte - 0xc7)?,
            0xca => Value::Float(f64::from(f32::from_be_bytes(self.array_of()?))),
            0xcb => Value::Float(f64::from_be_bytes(self.array_of()?)),
            // MessagePack's type bytes count in powers of two, so the distance from the first is
            // the exponent.
            byte @ 0xcc..=0xcf => Value::Unsigned(self.unsigned(byte - 0xcc)?),
            byte @ 0xd0..=0xd3 => self.signed(byte - 0xd0)?,
            byte @ 0xd4..=0xd8 => {
                // A type and 1, 2, 4, 8 or 16 bytes.
                self.take(1 + (1 << (byte - 0xd4)))?;
                Value::Other
            }
            byte @ 0xd9..=0xdb => Value::Text(self.sized(byte - 0xd9)?),
            byte @ 0xdc..=0xdd => {
                // Arrays and maps have no form with a length of one byte, so their widths start at
                // 1.
                let length = self.unsigned(byte - 0xdc + 1)? as usize;
                return self.array(length);
            }
            byte @ 0xde..=0xdf => {
                let length = self.unsigned(byte - 0xde + 1)? as usize;
                return self.map(length);
            }
            byte @ 0xe0..=0xff => Value::Signed(i64::from(byte as i8)),
        };
        Ok(ValueHead::Whole(value))
    }

    /// Reads a value; of an array or a map, makes sure that it is complete.
    #[inline]
    pub(super) fn value(&mut self) -> Result<Value<'a>, CutOff> {
        match self.head()? {
            ValueHead::Whole(value) => Ok(value),
            ValueHead::Array(length) => self.items(length).map(Value::Array),
            ValueHead::Map(pairs) => self.items(2 * pairs).map(Value::Map),
        }
    }

    /// Moves behind the next `values` values.
    pub(super) fn skip(&mut self, values: usize) -> Result<(), CutOff> {
        let mut pending = values;
        while pending > 0 {
            // Each round takes a byte at least or fails, so a claimed count costs no more than the
            // payload has.
            pending -= 1;
            let size = self.rest.first().map_or(0, |&byte| SIZES[usize::from(byte)]);
            if size > 0 {
                self.take(usize::from(size))?;
                continue;
            }
            // `head` reads the same byte again: the look at it did not move the cursor.
            pending += match self.head()? {
                ValueHead::Whole(_) => 0,
                ValueHead::Array(length) => length,
                ValueHead::Map(pairs) => 2 * pairs,
            };
        }
        Ok(())
    }

    /// The next value, if it is a number of 32 bits, not negative, and not among the last bytes.
    #[inline]
    fn obvious_number(&mut self) -> Option<u32> {
        // Eight bytes cover the longest number of 32 bits, and one load replaces a branch per
        // width.
        let word = u64::from_be_bytes(*self.rest.first_chunk()?);
        let (shift, mask) = match (word >> 56) as u8 {
            0x00..=0x7f => (56, 0x7f),
            0xcc => (48, 0xff),
            0xcd => (40, 0xffff),
            0xce => (24, u32::MAX),
            // Longer numbers, signed ones and SGLang's pairs are left to the slow path.
            _ => return None,
        };
        self.rest = &self.rest[usize::from(SIZES[(word >> 56) as usize])..];
        Some((word >> shift) as u32 & mask)
    }

    fn items(&mut self, left: usize) -> Result<Items<'a>, CutOff> {
        let before = self.rest;
        self.skip(left)?;
        // Cut to the elements themselves: a reader of the items cannot run into the value that
        // follows.
        let cursor = Self::new(&before[..before.len() - self.rest.len()]);
        Ok(Items { cursor, left })
    }

    fn array(&self, length: usize) -> Result<ValueHead<'a>, CutOff> {
        let fits = length <= self.rest.len();
        fits.then_some(ValueHead::Array(length)).ok_or(CutOff)
    }

    fn map(&self, pairs: usize) -> Result<ValueHead<'a>, CutOff> {
        // Half of the bytes bound the pairs, so `2 * pairs` cannot overflow.
        let fits = pairs <= self.rest.len() / 2;
        fits.then_some(ValueHead::Map(pairs)).ok_or(CutOff)
    }

    fn byte(&mut self) -> Result<u8, CutOff> {
        let (&first, rest) = self.rest.split_first().ok_or(CutOff)?;
        self.rest = rest;
        Ok(first)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], CutOff> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(CutOff)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array_of<const N: usize>(&mut self) -> Result<[u8; N], CutOff> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(CutOff)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A number of 1, 2, 4 or 8 bytes: 2 to the power of `width`.
    fn unsigned(&mut self, width: u8) -> Result<u64, CutOff> {
        Ok(match width {
            0 => u64::from(self.byte()?),
            1 => u64::from(u16::from_be_bytes(self.array_of()?)),
            2 => u64::from(u32::from_be_bytes(self.array_of()?)),
            _ => u64::from_be_bytes(self.array_of()?),
        })
    }

    fn signed(&mut self, width: u8) -> Result<Value<'a>, CutOff> {
        let number = match width {
            0 => i64::from(self.byte()? as i8),
            1 => i64::from(i16::from_be_bytes(self.array_of()?)),
            2 => i64::from(i32::from_be_bytes(self.array_of()?)),
            _ => i64::from_be_bytes(self.array_of()?),
        };
        // Some encoders write positive numbers in a signed form: one number has one representation
        // here.
        Ok(u64::try_from(number).map_or(Value::Signed(number), Value::Unsigned))
    }

    fn sized(&mut self, width: u8) -> Result<&'a [u8], CutOff> {
        let length = self.unsigned(width)?;
        self.take(length as usize)
    }

    fn extension(&mut self, width: u8) -> Result<Value<'a>, CutOff> {
        let length = self.unsigned(width)?;
        self.take(1 + length as usize)?;
        Ok(Value::Other)
    }
}

impl<'a> Items<'a> {
    /// Number of items left.
    pub(super) fn len(&self) -> usize {
        self.left
    }

    /// The bytes of those that are left.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.cursor.rest
    }

    /// All of them as numbers of 32 bits; `read` is asked of those that are not obviously one. As
    /// [`Iterator::map`], only faster.
    pub(super) fn numbers(mut self, read: impl Fn(Value<'a>) -> Option<u32>) -> Option<Vec<u32>> {
        // At most one place per byte: `items` checked that all elements are there.
        let mut numbers = Vec::with_capacity(self.left);
        while self.left > 0 {
            let obvious = self.cursor.obvious_number();
            self.left -= usize::from(obvious.is_some());
            let number = obvious.or_else(|| self.next().and_then(&read));
            numbers.push(number?);
        }
        Some(numbers)
    }

    /// The next one, as a list of one.
    pub(super) fn next_alone(&mut self) -> Option<Self> {
        // A removal from `left` first: an empty list must not read past its bytes.
        self.left = self.left.checked_sub(1)?;
        self.cursor.items(1).ok()
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    #[inline]
    fn next(&mut self) -> Option<Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        // They are complete, so nothing is cut off.
        self.cursor.value().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<'a> Value<'a> {
    /// The text, if it is one.
    pub(super) fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The number, if it is a whole one and not negative.
    pub(super) fn unsigned(self) -> Option<u64> {
        match self {
            Self::Unsigned(number) => Some(number),
            _ => None,
        }
    }

    /// The number, if it is a whole one of 64 bits.
    pub(super) fn signed(self) -> Option<i64> {
        match self {
            Self::Unsigned(number) => i64::try_from(number).ok(),
            Self::Signed(number) => Some(number),
            _ => None,
        }
    }

    /// The number, whole or not.
    pub(super) fn float(self) -> Option<f64> {
        match self {
            Self::Unsigned(number) => Some(number as f64),
            Self::Signed(number) => Some(number as f64),
            Self::Float(number) => Some(number),
            _ => None,
        }
    }

    /// The elements, if it is an array.
    pub(super) fn array(self) -> Option<Items<'a>> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The value behind the text `key`, if it is a map that has it and it is not nil. The first
    /// one counts.
    pub(super) fn named(self, key: &str) -> Option<Value<'a>> {
        let Self::Map(mut items) = self else {
            return None;
        };
        // Both halves are read in each round, so a key is never mistaken for a value.
        while let (Some(name), Some(value)) = (items.next(), items.next()) {
            if matches!(name, Value::Text(text) if text == key.as_bytes()) {
                return value.present();
            }
        }
        None
    }

    /// Nil is the same as absent: engines do not tell them apart.
    pub(super) fn present(self) -> Option<Self> {
        (!matches!(self, Self::Nil)).then_some(self)
    }
}
