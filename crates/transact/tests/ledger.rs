//! Ledgers on disk: what was answered is found again, at the end of a block, whoever executed it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use terrace_memory::{Budget, Domain};
use terrace_store::{Access, Durability, Error as StoreError};
use terrace_transact::ledger::{
    Block, Ledger, LedgerEngine, LedgerError, LedgerOptions, Profile, Refused, Status, Transfer,
};
use terrace_workload::random::Rng as Random;

fn options(durability: Durability) -> LedgerOptions {
    let profile = Some(Profile::SmallCoinPlus);
    let log_bytes = 64 << 10;
    LedgerOptions { profile, workers: 2, durability, log_bytes, ..LedgerOptions::default() }
}

fn open(dir: &Path, options: &LedgerOptions) -> Result<Ledger, LedgerError> {
    Ledger::open(dir, options, &Arc::new(Budget::new(1 << 30)))
}

fn block(random: &mut Random, accounts: u64, orders: u64) -> Vec<Transfer> {
    let one = |random: &mut Random| Transfer {
        id: 0,
        from: random.below(accounts),
        to: random.below(accounts),
        amount: random.below(50),
        gas: random.below(3),
    };
    (0..orders).map(|_| one(random)).collect()
}

/// As the paper writes it down.
fn model(balances: &mut BTreeMap<u64, i64>, transfers: &[Transfer]) {
    for transfer in transfers {
        let (gas, amount) = (transfer.gas as i64, transfer.amount as i64);
        let from = balances.get_mut(&transfer.from).expect("opened");
        if *from < gas {
            continue;
        }
        *from -= gas;
        if *from >= amount {
            *from -= amount;
            *balances.get_mut(&transfer.to).expect("opened") += amount;
        }
    }
}

fn balances(ledger: &Ledger) -> BTreeMap<u64, i64> {
    ledger.accounts().expect("whole").into_iter().map(|(number, a)| (number, a.balance)).collect()
}

#[test]
fn agrees_with_a_model_after_every_opening() {
    for durability in [Durability::Sync, Durability::None] {
        let dir = tempfile::tempdir().expect("directory");
        let mut random = Random::new(3);
        let mut expected = BTreeMap::new();
        let mut entries = 0;
        for turn in 0..30u64 {
            let mut options = options(durability);
            options.engine = LedgerEngine::ALL[turn as usize % LedgerEngine::ALL.len()];
            let ledger = open(dir.path(), &options).expect("a ledger");
            assert_eq!(balances(&ledger), expected, "turn {turn}");
            assert_eq!(ledger.hash().expect("whole").0, entries);
            assert!(ledger.verify().expect("whole"));
            let new: Vec<_> = (0..10).map(|n| (10 * turn + n, random.below(100))).collect();
            ledger.open_accounts(&new).expect("new ones");
            expected.extend(new.iter().map(|(number, balance)| (*number, *balance as i64)));
            entries += 1;
            for _ in 0..random.below(40) {
                let orders = random.below(60);
                let transfers = block(&mut random, expected.len() as u64, orders);
                model(&mut expected, &transfers);
                ledger.execute(Block::of_transfers(transfers).expect("a block")).expect("known");
                entries += 1;
            }
            if turn % 3 == 0 {
                ledger.close().expect("close");
                let refused = ledger.account(0).expect_err("closed").to_string();
                assert!(refused.contains("closed"), "{refused}");
            }
        }
    }
}

#[test]
fn a_ledger_grows_with_its_accounts() {
    let dir = tempfile::tempdir().expect("directory");
    let ledger = open(dir.path(), &options(Durability::Sync)).expect("a ledger");
    for turn in 0..10u64 {
        let new: Vec<_> = (0..10_000).map(|n| (turn << 32 | n, 7)).collect();
        ledger.open_accounts(&new).expect("room is made");
    }
    let pay = Transfer { from: 3, to: 9 << 32, amount: 7, ..Transfer::default() };
    let executed = ledger.execute(Block::of_transfers(vec![pay]).expect("a block")).expect("known");
    assert_eq!(executed.statuses, [Status::Done]);
    let (all, hash) = (ledger.accounts().expect("whole"), ledger.hash().expect("whole"));
    drop(ledger);
    let ledger = open(dir.path(), &options(Durability::Sync)).expect("a ledger");
    assert_eq!(ledger.accounts().expect("whole"), all);
    assert_eq!(ledger.hash().expect("whole"), hash);
    let files = std::fs::read_dir(dir.path()).expect("directory").count();
    assert_eq!(files, 2, "the file and the lock");
}

#[test]
fn a_refused_block_changes_nothing() {
    let dir = tempfile::tempdir().expect("directory");
    let ledger = open(dir.path(), &options(Durability::Sync)).expect("a ledger");
    ledger.open_accounts(&[(1, 100), (2, 0)]).expect("new ones");
    let before = (ledger.hash().expect("whole"), ledger.accounts().expect("whole"));
    let pay = |to| Transfer { from: 1, to, amount: 5, ..Transfer::default() };
    let block = |list: Vec<Transfer>| Block::of_transfers(list).expect("a block");
    let refused = ledger.execute(block(vec![pay(2), pay(3)])).expect_err("unknown");
    assert_eq!(refused.to_string(), "order 1 is about the account 3, which has not been opened");
    for bad in
        [vec![(3, 1), (2, 0)], vec![(3, 1), (3, 1)], vec![(u64::MAX, 0)], vec![(5, u64::MAX)]]
    {
        assert!(matches!(ledger.open_accounts(&bad), Err(LedgerError::Refused(_))), "{bad:?}");
    }
    let all = ledger.execute_all([block(vec![pay(2)]), block(vec![pay(7)]), block(vec![pay(2)])]);
    let all = all.expect("the medium is fine");
    assert!(all[0].is_ok() && all[2].is_ok());
    assert_eq!(all[1], Err(Refused::Unknown { order: 0, account: 7 }));
    assert_eq!(ledger.account(2).expect("whole").expect("opened").balance, 10);
    let ten = Transfer { from: 2, to: 1, amount: 10, ..Transfer::default() };
    ledger.execute(block(vec![ten])).expect("known");
    assert_ne!(ledger.hash().expect("whole"), before.0, "turns are counted");
    drop(ledger);
    let other = |change: fn(&mut LedgerOptions)| {
        let mut options = options(Durability::Sync);
        change(&mut options);
        open(dir.path(), &options).expect_err("refused").to_string()
    };
    let message = other(|options| options.profile = Some(Profile::SmallCoin));
    assert!(message.ends_with("made with profile smallcoin+, opened with smallcoin"), "{message}");
    let message = other(|options| options.overdraft = Some(7));
    assert!(message.ends_with("made with overdraft 0, opened with 7"), "{message}");
    let small = Ledger::open(dir.path(), &options(Durability::Sync), &Arc::new(Budget::new(1000)));
    assert!(matches!(small, Err(LedgerError::Store(StoreError::OutOfMemory { .. }))));
    let ledger = open(dir.path(), &options(Durability::Sync)).expect("a ledger");
    let twice = open(dir.path(), &options(Durability::Sync));
    assert!(matches!(twice, Err(LedgerError::Store(StoreError::LockedHere(_)))));
    drop(ledger);
}

#[test]
fn a_block_in_pieces_happens_or_does_not() {
    let dir = tempfile::tempdir().expect("directory");
    let ledger = open(dir.path(), &options(Durability::Sync)).expect("a ledger");
    let accounts: Vec<_> = (0..100).map(|number| (number, 1000)).collect();
    ledger.open_accounts(&accounts).expect("new ones");
    let mut expected: BTreeMap<u64, i64> = accounts.iter().map(|(n, b)| (*n, *b as i64)).collect();
    let mut random = Random::new(9);
    // Ten times what the log holds.
    let pieces: Vec<_> = (0..20).map(|_| block(&mut random, 100, 1000)).collect();
    let before = ledger.hash().expect("whole");
    let mut broken: Vec<Result<Block, LedgerError>> = pieces
        .iter()
        .map(|piece| Ok(Block::of_transfers(piece.clone()).expect("a block")))
        .collect();
    broken.push(Err(LedgerError::Store(StoreError::ReadOnly("line 20001 is no order".into()))));
    let refused = ledger.execute_pieces(broken, |_| {}).expect_err("the last piece");
    assert!(refused.to_string().contains("line 20001"), "{refused}");
    assert_eq!(ledger.hash().expect("whole"), before);
    assert_eq!(balances(&ledger), expected);
    // Whoever hands over the pieces panics: memory holds a part of the block, and nothing more is told.
    let panics = pieces
        .iter()
        .take(3)
        .map(|piece| Ok::<_, LedgerError>(Block::of_transfers(piece.clone()).expect("a block")));
    let panics = panics.chain(std::iter::from_fn(|| panic!("no more pieces")));
    let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        ledger.execute_pieces(panics, |_| {})
    }));
    assert!(left.is_err());
    assert!(ledger.account(1).expect_err("half done").to_string().contains("half done"));
    drop(ledger);
    let ledger = open(dir.path(), &options(Durability::Sync)).expect("a ledger");
    assert_eq!(ledger.hash().expect("whole"), before);
    let mut told = 0;
    let whole = pieces
        .iter()
        .map(|piece| Ok::<_, LedgerError>(Block::of_transfers(piece.clone()).expect("a block")));
    ledger.execute_pieces(whole, |executed| told += executed.statuses.len()).expect("all of them");
    assert_eq!(told, 20_000);
    pieces.iter().for_each(|piece| model(&mut expected, piece));
    assert_eq!(balances(&ledger), expected);
    drop(ledger);
    let ledger = open(dir.path(), &options(Durability::Sync)).expect("a ledger");
    assert_eq!(balances(&ledger), expected);
    assert_eq!(ledger.hash().expect("whole").0, before.0 + 1);
}

#[test]
fn damage_is_named_and_what_is_before_it_can_be_read() {
    let dir = tempfile::tempdir().expect("directory");
    let ledger = open(dir.path(), &options(Durability::Sync)).expect("a ledger");
    ledger.open_accounts(&[(1, 1000), (2, 0)]).expect("new ones");
    let pay = Transfer { from: 1, to: 2, amount: 5, ..Transfer::default() };
    for _ in 0..10 {
        ledger.execute(Block::of_transfers(vec![pay]).expect("a block")).expect("known");
    }
    ledger.close().expect("close");
    drop(ledger);
    let path = dir.path().join("ledger-1");
    let mut bytes = std::fs::read(&path).expect("file");
    let to_read = LedgerOptions { access: Access::Read, ..LedgerOptions::default() };
    let readers = [(); 2].map(|()| open(dir.path(), &to_read).expect("readers share"));
    for ledger in &readers {
        assert_eq!(ledger.account(2).expect("readable").expect("opened").balance, 50);
        assert!(ledger.execute(Block::of_transfers(vec![pay]).expect("a block")).is_err());
    }
    let beside = open(dir.path(), &options(Durability::Sync)).map(drop).expect_err("locked");
    assert!(matches!(beside, LedgerError::Store(StoreError::LockedHere(_))), "{beside}");
    drop(readers);
    assert_eq!(std::fs::read(&path).expect("file"), bytes, "reading writes nothing");
    let nothing = open(&dir.path().join("absent"), &to_read).map(drop);
    assert!(nothing.is_err() && !dir.path().join("absent").exists());
    // The last byte of the fifth block's order.
    let is_pay =
        |at: &usize| bytes[*at..].starts_with(&[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5]);
    let at = (0..bytes.len() - 24).step_by(8).filter(is_pay).nth(4).expect("ten of them");
    bytes[at + 16] = 6;
    std::fs::write(&path, &bytes).expect("file");
    let error = open(dir.path(), &options(Durability::Sync)).expect_err("damage").to_string();
    assert!(
        error.contains("ledger-1 at offset") && error.contains("record 5 is damaged"),
        "{error}"
    );
    let salvaged = LedgerOptions { access: Access::Salvage, ..options(Durability::Sync) };
    let ledger = open(dir.path(), &salvaged).expect("what is intact");
    assert_eq!(ledger.account(2).expect("readable").expect("opened").balance, 20);
    assert!(ledger.stats().damage.expect("told").contains("record 5"));
    assert!(ledger.execute(Block::of_transfers(vec![pay]).expect("a block")).is_err());
    drop(ledger);
    assert_eq!(std::fs::read(&path).expect("file"), bytes, "salvage writes nothing");
    assert_eq!(salvaged.domain, Domain::PageCache);
}

/// They were never synced: a power cut could take an acknowledged block with the ledger's folder.
#[test]
fn the_folders_above_a_new_ledger_are_durable_when_it_answers() {
    let root = tempfile::tempdir().expect("directory");
    let trace = terrace_durable::medium::FolderTrace::start(root.path()).expect("a trace");
    let ledger = open(&root.path().join("data/ledgers/bank"), &options(Durability::Sync));
    ledger.expect("a ledger").open_accounts(&[(1, 10)]).expect("opened");
    assert_eq!(trace.undurable(), Vec::<std::path::PathBuf>::new());
}
