//! The tests of this crate from outside, one module per behaviour, in one program: what they share is compiled and
//! linked once. `cargo test -p terrace-store --test suite NAME::` runs those of one file.

mod a_value_a_session_observed_and_committed_survives;
mod a_value_that_was_read_outlives_the_process;
mod adversary;
mod attack;
mod batches;
mod budget_is_held;
mod concurrent_histories_have_an_explanation;
mod costs;
mod damage_in_open_logs;
mod damage_is_named_and_never_hides_keys;
mod deleted_keys_stay_deleted_across_power_cuts;
mod durability_may_be_switched_under_load;
mod failed_writes_are_never_acknowledged;
mod folders_survive_power_cuts;
mod found;
mod index_tier;
mod kept_index;
mod kill;
mod kill_words;
mod map;
mod missing_files;
mod ordered;
mod power_loss;
mod queue;
mod queues_end;
mod reading_an_item_of_a_batch_waits_for_its_end;
mod reading_changes_nothing;
mod short_logs;
mod slabs;
mod space_stays_within_bounds;
mod values_overwritten_in_place_are_read_whole;
mod values_read_are_always_whole;
mod watched_keys;
mod words;
mod written_bytes_are_counted;
