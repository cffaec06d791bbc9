// Package exporter reads devices from the metric pages of the vendors' exporters: DCGM
// exporter for NVIDIA and npu-exporter for Ascend.
//
// # Terms
//
// A Page is a device.Provider that fetches a page in the Prometheus text format, version
// 0.0.4. A sentinel is the number that an exporter writes where it has no value, such as
// 2147483632; it is read as unknown. The parsers are pure and exported, for pages that were
// fetched by something else.
//
// # Smallest use
//
//	page, err := exporter.DCGM(exporter.Config{URL: "http://localhost:9400/metrics"})
//	if err != nil {
//		return err
//	}
//	devices, err := page.Devices(ctx)
//
// # Concurrency and limits
//
// All methods may be called from any goroutine. A fetch takes at most Timeout (5 s) and
// MaxBytes (8 MiB). The page is fetched from the URL that was given, without following
// redirects; nothing else is contacted.
//
// # Errors
//
// A *PageError says that the page could not be fetched, with the cause or the HTTP status.
// A *device.TextError says at which line and field it is not understood. Metrics that the
// package does not use are skipped unread.
//
// # References
//
// Prometheus, Exposition Formats, Text-based format. NVIDIA, DCGM API, Field Identifiers and
// the blank values of dcgm_fields. Ascend, NPU Exporter, metric names. NVIDIA, Xid Errors.
package exporter
