//! Little-endian fields, written to and taken from byte slices. What is too short is an error,
//! never a panic: these bytes come from disks.

/// Appends fields.
pub(crate) struct FieldWriter<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> FieldWriter<'a> {
    /// Over `bytes`, which must have room for all that will be put.
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes put so far.
    pub(crate) fn len(&self) -> usize {
        self.at
    }

    /// Returns the bytes written so far.
    pub(crate) fn written(&self) -> &[u8] {
        &self.bytes[..self.at]
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }
}

/// Takes fields off the front; `None` where too little is left.
pub(crate) struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*first)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
