//! Readings of sensors in the order of sensor and time: the newest, a window, and what is too old.
//!
//! `cargo run --release -p terrace --example time_series`

use serde::{Deserialize, Serialize};
use terrace::{Database, MapOptions};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Reading {
    celsius: f64,
    /// Added later: readings without it are still read.
    #[serde(default)]
    humidity: Option<f64>,
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Database::open(dir.path(), MapOptions::default())?;
    // Sensor, and seconds since 1970.
    let readings = db.typed_map::<(String, u64), Reading>("readings")?;
    for sensor in ["cellar", "roof"] {
        for minute in 0..60u32 {
            let celsius = 10.0 + f64::from(minute) / 10.0;
            let time = 1_700_000_000 + u64::from(minute) * 60;
            readings.put(&(sensor.into(), time), &Reading { celsius, humidity: None })?;
        }
    }

    let newest = readings.prefix(&"cellar".into()).next_back().transpose()?;
    println!("newest: {newest:?}");

    let of_cellar = |from, to| readings.range(("cellar".into(), from)..("cellar".into(), to));

    let window: Vec<_> = of_cellar(1_700_000_600, 1_700_001_200).collect::<Result<_, _>>()?;
    let mean = window.iter().map(|(_, reading)| reading.celsius).sum::<f64>() / window.len() as f64;
    println!("mean of {} readings: {mean:.2}", window.len());
    assert_eq!(window.len(), 10);

    for item in of_cellar(0, 1_700_001_800) {
        readings.delete(&item?.0)?;
    }
    assert_eq!(readings.len(), 60 + 30);
    db.close()?;
    Ok(())
}
