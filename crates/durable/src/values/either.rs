//! Values of a design chosen when they are opened.

use super::place::end_of;
use super::{
    BucketLock, Entries, Found, GetWords, ItemCopy, NoItem, PutWord, Reach, Recovered, Room,
    SEGMENT_BYTES, Seen, Ticket, Values, Writing,
};
use crate::allocation::AllocationPages;
use crate::error::{Error, Result};
use crate::index_file::Pages;
use crate::item::{Header, Item, MAX_HEADER_BYTES, NewItem};
use crate::logs::{self, Appender, Logs, Wanted};
use crate::medium::Medium;
use crate::sections::Changes;
use crate::slabs::{self, Slabs, Slots};
use crate::superblock::Rule;
use crossbeam_epoch::Guard;
use terrace_memory::{Memory, Native};

/// The values of a map whose design is chosen when it is opened.
#[derive(Debug)]
pub enum LogsOrSlabs<M: Memory = Native> {
    /// Log-structured.
    Logs(Logs<M>),
    /// Slots of superblocks.
    Slabs(Slabs<M>),
}

/// Room in either.
#[derive(Debug)]
pub enum RoomInEither<'a, M: Memory = Native> {
    /// In a writer's log.
    Logs(Appender<'a, M>),
    /// Among a writer's slots.
    Slabs(Slots<'a, M>),
}

macro_rules! either {
    ($either:expr, $values:ident => $answer:expr) => {
        match $either {
            Self::Logs($values) => $answer,
            Self::Slabs($values) => $answer,
        }
    };
}

impl<M: Memory> LogsOrSlabs<M> {
    /// The logs, if that is the design.
    pub fn logs(&self) -> Option<&Logs<M>> {
        match self {
            Self::Logs(logs) => Some(logs),
            Self::Slabs(_) => None,
        }
    }

    /// The slabs, if that is the design.
    pub fn slabs(&self) -> Option<&Slabs<M>> {
        match self {
            Self::Logs(_) => None,
            Self::Slabs(slabs) => Some(slabs),
        }
    }

    /// The medium below.
    pub fn medium(&self) -> &Medium<M> {
        either!(self, values => values.medium())
    }

    /// Number of writers; they are counted from 1.
    pub fn writers(&self) -> usize {
        either!(self, values => values.writers())
    }

    /// Whoever is writing when this is called is done on return; who has a batch open in this thread is not waited for.
    pub fn await_writers(&self) {
        either!(self, values => values.await_writers());
    }

    /// As [`Logs::recover`] and [`Slabs::recover`].
    ///
    /// # Errors
    /// The errors of [`Logs::recover`] and [`Slabs::recover`].
    pub fn recover(
        &self,
        threads: usize,
        visit: &(dyn Fn(u64, &Item<'_>, usize) + Sync),
    ) -> Result<Recovered> {
        either!(self, values => values.recover(threads, visit))
    }

    /// As [`Logs::recover_reached`] and [`Slabs::recover_reached`].
    ///
    /// # Errors
    /// The errors of [`Logs::recover_reached`] and [`Slabs::recover_reached`].
    pub fn recover_reached(&self, threads: usize, reach: Reach<'_>) -> Result<Recovered> {
        either!(self, values => values.recover_reached(threads, reach))
    }

    /// Recovers everything from the allocation metadata instead, which is exact: nothing is read but the heads of
    /// segments.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) if a batch was never finished, or if the allocation metadata cannot be
    /// those of these values, and of an index with these entries; nothing was changed then. Those of the medium.
    pub fn recover_allocation(
        &self,
        pages: &AllocationPages,
        get: GetWords<'_>,
        entries: Option<Entries<'_>>,
    ) -> Result<Recovered> {
        either!(self, values => values.recover_allocation(pages, get, entries))
    }

    /// Tells every word of the allocation metadata. Nobody writes meanwhile.
    pub fn write_allocation(&self, pages: &AllocationPages, put: PutWord<'_>) {
        either!(self, values => values.write_allocation(pages, put));
    }

    /// From here on what is written counts by the words that it adds to its section. To be called before
    /// the first write, with exact allocation metadata.
    ///
    /// # Panics
    /// The second time.
    pub fn keep_allocation(&self, pages: AllocationPages) {
        either!(self, values => values.keep_allocation(pages));
    }

    /// The pages of these values' allocation metadata.
    pub fn allocation_pages(&self) -> Pages {
        let (count, bytes) = match self {
            Self::Logs(logs) => {
                (logs.medium().capacity_bytes() / u64::from(SEGMENT_BYTES), logs::PAGE_BYTES)
            }
            Self::Slabs(slabs) => {
                (slabs.medium().capacity_bytes() / u64::from(SEGMENT_BYTES), slabs::PAGE_BYTES)
            }
        };
        Pages { count, bytes }
    }

    /// Segments that the file has, before anything was recovered: the first one behind them.
    ///
    /// # Errors
    /// Those of the medium.
    pub fn segments_in_file(&self) -> Result<u32> {
        let bytes = self.medium().file_bytes()?;
        Ok((bytes / u64::from(SEGMENT_BYTES)).max(1) as u32)
    }

    /// Refuses a file with segments that a later version made, before anything is changed for it.
    ///
    /// # Errors
    /// [`Error::Newer`], those of the medium.
    pub fn check_known(&self) -> Result<()> {
        either!(self, values => values.check_known())
    }

    /// Passes on the key of what claims to be an item at `location`, which may be anything, if it lies within the first
    /// `file_bytes`: before recovery nothing is known of it, not even whether it is whole.
    pub fn claimed_key<R>(
        &self,
        location: u64,
        file_bytes: u64,
        f: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        let memory = self.medium().memory();
        let end = end_of(location);
        let is_there = location >= u64::from(SEGMENT_BYTES) && end <= file_bytes.min(memory.len());
        if !is_there || !self.medium().is_byte_addressable() {
            return None;
        }
        let mut head = [0; MAX_HEADER_BYTES];
        let head_bytes = (end - location).min(head.len() as u64) as usize;
        // SAFETY: in the file, all of which is there on a byte-addressable medium; and within the copy. Here and below.
        unsafe { memory.copy_changing(location, head.as_mut_ptr(), head_bytes) };
        let header = Header::decode(&head[..head_bytes])?;
        if header.item_bytes() as u64 > end - location {
            return None;
        }
        let (mut short, mut long) = ([0; 256], Vec::new());
        let key = match short.get_mut(..header.key_bytes) {
            Some(key) => key,
            None => {
                long.resize(header.key_bytes, 0);
                &mut long[..]
            }
        };
        let key_at = location + header.header_bytes as u64;
        // SAFETY: as above; the key is part of the item, which ends in the file (checked).
        unsafe { memory.copy_changing(key_at, key.as_mut_ptr(), key.len()) };
        Some(f(key))
    }

    /// Whether there are items that nobody has verified since they were opened.
    #[inline(always)]
    pub fn verifies_on_read(&self) -> bool {
        either!(self, values => values.verifies_on_read())
    }

    /// Reads the item at `location`, learnt under `guard`, from the disk, if its log is there alone: for whoever looks
    /// again at once.
    ///
    /// # Errors
    /// Those of [`Logs::fetch`].
    #[cold]
    pub fn fetch(&self, location: u64, guard: &Guard) -> Result<()> {
        self.logs().map_or(Ok(()), |logs| logs.fetch(location, guard))
    }

    /// What to fetch for the item at `location`, learnt under a guard that is held; nothing where it is in memory.
    #[cold]
    pub fn wanted(&self, location: u64) -> Option<Wanted> {
        self.logs()?.wanted(location)
    }

    /// Bytes of an item that was fetched lately, or of the shortest one.
    #[cold]
    pub fn usual_item_bytes(&self) -> usize {
        self.logs().map_or(MAX_HEADER_BYTES, Logs::usual_bytes)
    }

    /// How many bytes of copies may be in memory together.
    #[cold]
    pub fn copies_most(&self) -> u64 {
        self.logs().map_or(0, Logs::copies_most)
    }

    /// Fetches many, all together ([`Logs::fetch_all`]).
    #[cold]
    pub fn fetch_all(&self, wanted: Vec<Wanted>, failed: impl FnMut(Wanted, Error)) {
        if let Some(logs) = self.logs() {
            logs.fetch_all(wanted, failed);
        }
    }

    /// Why nothing can be read where an entry says, with the file and the way out.
    #[cold]
    pub fn damaged(&self, why: NoItem) -> Error {
        let offset = match why {
            NoItem::Invalid(offset) => offset,
            // What the disk says is said once more, by whoever is told.
            NoItem::Away(offset) | NoItem::Unreadable(offset) => {
                let fetched = self.fetch(offset, &crossbeam_epoch::pin());
                let path = self.medium().path().to_path_buf();
                let source =
                    std::io::Error::other("the disk refused it a moment ago, and gives it now");
                return fetched.err().unwrap_or(Error::Unreadable { path, offset, source });
            }
        };
        let what = "an entry of the index names this place, and no whole item lies there; other keys can be read: \
                    export them with salvage, which reads the values alone"
            .into();
        Error::Damaged { path: self.medium().path().to_path_buf(), offset, what }
    }

    /// The first segment that was never used.
    pub fn segments_end(&self) -> u32 {
        either!(self, values => values.segments_end())
    }

    /// Waits for writers at work, after writing was [stopped](LogsOrSlabs::stop), and gives back what they
    /// held for later. Whether all of it has come back: in slabs, readers may still hold some.
    pub fn settle_writers(&self) -> bool {
        either!(self, values => values.settle_writers())
    }

    /// Mark of the persistent index that goes with the values, 0 if none does.
    pub fn index_mark(&self) -> u64 {
        either!(self, values => values.index_mark())
    }

    /// Says, durably on return, which persistent index goes with the values; 0: none.
    ///
    /// # Errors
    /// As [`Medium::write_out`].
    pub fn set_index_mark(&self, mark: u64) -> Result<()> {
        either!(self, values => values.set_index_mark(mark))
    }

    /// Which items count after a crash: in slabs, all.
    pub fn rule(&self) -> Rule {
        self.logs().map_or(Rule::All, Logs::rule)
    }

    /// As [`Logs::set_rule`]; slabs keep every item under either rule.
    ///
    /// # Errors
    /// Those of [`Logs::set_rule`].
    pub fn set_rule(&self, rule: Rule) -> Result<()> {
        self.logs().map_or(Ok(()), |logs| logs.set_rule(rule))
    }

    /// As [`Logs::prepare`]; slabs have nothing to prepare.
    ///
    /// # Errors
    /// Those of [`Logs::prepare`].
    pub fn prepare(&self, count: usize) -> Result<()> {
        self.logs().map_or(Ok(()), |logs| logs.prepare(count))
    }

    /// As [`Logs::write_sealed`]; in slabs nothing waits to be written.
    ///
    /// # Errors
    /// Those of [`Logs::write_sealed`].
    pub fn write_sealed(&self, keep_bytes: u64) -> Result<()> {
        self.logs().map_or(Ok(()), |logs| logs.write_sealed(keep_bytes))
    }

    /// As [`Logs::clear`] and [`Slabs::clear`].
    ///
    /// # Errors
    /// The errors of [`Logs::clear`] and [`Slabs::clear`].
    pub fn clear(&self, guard: &Guard, f: impl FnOnce()) -> Result<()> {
        either!(self, values => values.clear(guard, f))
    }

    /// The error that stopped writing, if one did.
    pub fn stopped(&self) -> Option<&str> {
        either!(self, values => values.stopped())
    }

    /// Refuses all further writes, for `reason`.
    pub fn stop(&self, reason: String) {
        either!(self, values => values.stop(reason));
    }

    /// Says that more is written when the recovery is over, also where the medium is only read; who has done so says
    /// [`LogsOrSlabs::all_is_read`] there.
    pub fn expects_more(&self) {
        either!(self, values => values.expects_more());
    }

    /// As [`Logs::all_is_read`]; in slabs nothing waits for more.
    pub fn all_is_read(&self, reason: &str) {
        match self.logs() {
            Some(logs) => logs.all_is_read(reason),
            None => self.stop(reason.into()),
        }
    }
}

impl<M: Memory> Values for LogsOrSlabs<M> {
    type Room<'a> = RoomInEither<'a, M>;

    #[inline(always)]
    fn room(&self, writer: usize, bytes: usize, room: Room) -> Result<RoomInEither<'_, M>> {
        Ok(match self {
            Self::Logs(logs) => RoomInEither::Logs(logs.appender(writer, bytes, room)?),
            Self::Slabs(slabs) => RoomInEither::Slabs(slabs.slots(writer, bytes, room)?),
        })
    }

    #[inline(always)]
    fn item<'g>(&'g self, location: u64, lock: &'g BucketLock) -> Found<Item<'g>> {
        either!(self, values => values.item(location, lock))
    }

    #[inline(always)]
    fn item_again<'g>(&'g self, location: u64, lock: &'g BucketLock) -> Found<Item<'g>> {
        either!(self, values => values.item_again(location, lock))
    }

    #[inline(always)]
    fn has_key(&self, location: u64, key: &[u8], lock: &BucketLock) -> Found<bool> {
        either!(self, values => values.has_key(location, key, lock))
    }

    #[inline(always)]
    fn seen<'g>(&'g self, location: u64, guard: &'g Guard) -> Found<Seen<'g>> {
        either!(self, values => values.seen(location, guard))
    }

    #[inline(always)]
    fn seen_again<'g>(&'g self, location: u64, guard: &'g Guard) -> Found<Seen<'g>> {
        either!(self, values => values.seen_again(location, guard))
    }

    #[inline(always)]
    fn seen_if_key<'g>(
        &'g self,
        location: u64,
        key: &[u8],
        guard: &'g Guard,
    ) -> Found<Option<Seen<'g>>> {
        either!(self, values => values.seen_if_key(location, key, guard))
    }

    fn verify_on_read(&self) {
        either!(self, values => values.verify_on_read());
    }

    fn copy_item(&self, location: u64, copy: &mut ItemCopy) -> bool {
        either!(self, values => Values::copy_item(values, location, copy))
    }

    #[inline(always)]
    fn prefetch_head(&self, location: u64) {
        either!(self, values => values.prefetch_head(location));
    }

    #[inline(always)]
    fn prefetch(&self, location: u64, lines: u64) {
        either!(self, values => values.prefetch(location, lines));
    }

    #[inline(always)]
    fn prefetch_to_update(&self, location: u64, lines: u64) {
        either!(self, values => Values::prefetch_to_update(values, location, lines));
    }

    fn supersede(&self, location: u64, bytes: usize) {
        either!(self, values => Values::supersede(values, location, bytes));
    }

    #[inline(always)]
    fn release(&self, location: u64) {
        either!(self, values => Values::release(values, location));
    }

    #[inline(always)]
    fn tombstone_stamp(&self) -> Option<u64> {
        either!(self, values => values.tombstone_stamp())
    }

    #[inline(always)]
    fn undurable(&self, location: u64) -> Option<Ticket> {
        either!(self, values => Values::undurable(values, location))
    }

    fn commit(&self, ticket: Ticket) -> Result<()> {
        either!(self, values => Values::commit(values, ticket))
    }

    fn flush_all(&self) -> Result<()> {
        either!(self, values => Values::flush_all(values))
    }

    fn max_item_bytes(&self) -> usize {
        either!(self, values => Values::max_item_bytes(values))
    }
}

impl<M: Memory> Writing for RoomInEither<'_, M> {
    #[inline(always)]
    fn fits(&self, bytes: usize) -> bool {
        either!(self, room => room.fits(bytes))
    }

    #[inline(always)]
    fn supersedes(&mut self, location: u64, bytes: usize) {
        either!(self, room => Writing::supersedes(room, location, bytes));
    }

    #[inline(always)]
    fn write(&mut self, new: &NewItem<'_>, changes: &mut Changes) -> u64 {
        either!(self, room => Writing::write(room, new, changes))
    }

    #[inline(always)]
    fn overwrite(&mut self, location: u64, old: &Item<'_>, new: &NewItem<'_>) -> bool {
        either!(self, room => Writing::overwrite(room, location, old, new))
    }

    fn may_overwrite(&self, location: u64, old: &Item<'_>, new: &NewItem<'_>) -> bool {
        either!(self, room => Writing::may_overwrite(room, location, old, new))
    }

    #[inline(always)]
    fn retire(&mut self, location: u64, bytes: usize, changes: &mut Changes) {
        either!(self, room => Writing::retire(room, location, bytes, changes));
    }

    #[inline(always)]
    fn supersede(&mut self, location: u64, bytes: usize, changes: &mut Changes) -> Option<u64> {
        either!(self, room => Writing::supersede(room, location, bytes, changes))
    }

    #[inline(always)]
    fn ticket(&self) -> Ticket {
        either!(self, room => room.ticket())
    }

    fn begin_batch(&mut self, changes: &mut Changes) {
        either!(self, room => Writing::begin_batch(room, changes));
    }

    fn end_batch(&mut self, changes: &mut Changes) {
        either!(self, room => Writing::end_batch(room, changes));
    }

    fn batch_ended(&mut self) {
        either!(self, room => Writing::batch_ended(room));
    }
}
