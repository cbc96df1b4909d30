//! Takes bytes off the front of a slice. It returns `None` instead of reading past the end.

#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The bytes that are left.
    pub const fn len(self) -> usize {
        self.0.len()
    }

    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// A field with its length in one byte before it.
    pub fn field_u8(&mut self) -> Option<&'a [u8]> {
        let count = self.u8()?;
        self.take(count.into())
    }

    /// A field with its length in two bytes before it.
    pub fn field_u16(&mut self) -> Option<&'a [u8]> {
        let count = self.u16()?;
        self.take(count.into())
    }
}
