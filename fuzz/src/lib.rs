//! Fuzz targets as plain functions, their corpus and a stable driver.
