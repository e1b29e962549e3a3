package cluster

import "github.com/prometheus/common/model"

// node_exporter's InfiniBand ports: two of 400 Gbit/s. What they carry follows
// the GPUs, their errors nothing.

type infinibandField struct {
	name, help string
	typ        model.MetricType
	detail     Detail
	idle       float64 // a second, or the reading of a gauge
	perGPU     float64 // a second, of each GPU that works
}

var infinibandFields = []infinibandField{
	{"excessive_buffer_overrun_errors_total", "Number of times that the port's receive buffers overran.", model.MetricTypeCounter, Full, 0, 0},
	{"link_downed_total", "Number of times the link failed to recover from an error state and went down.", model.MetricTypeCounter, Lean, 0, 0},
	{"link_error_recovery_total", "Number of times the link recovered from an error state by itself.", model.MetricTypeCounter, Lean, 0, 0},
	{"local_link_integrity_errors_total", "Number of times that local physical errors exceeded their threshold.", model.MetricTypeCounter, Full, 0, 0},
	{"multicast_packets_received_total", "Number of multicast packets received, errors included.", model.MetricTypeCounter, Full, 0.4, 0},
	{"multicast_packets_transmitted_total", "Number of multicast packets transmitted, errors included.", model.MetricTypeCounter, Full, 0.1, 0},
	{"physical_state_id", "Physical state of the port (5: link up).", model.MetricTypeGauge, Full, 5, 0},
	{"port_constraint_errors_received_total", "Number of received packets that the switch's port discarded.", model.MetricTypeCounter, Full, 0, 0},
	{"port_constraint_errors_transmitted_total", "Number of packets that the switch's port did not transmit.", model.MetricTypeCounter, Full, 0, 0},
	{"port_data_received_bytes_total", "Number of data octets received on all links.", model.MetricTypeCounter, Lean, 2e5, 1.4e9},
	{"port_data_transmitted_bytes_total", "Number of data octets transmitted on all links.", model.MetricTypeCounter, Lean, 2e5, 1.4e9},
	{"port_discards_received_total", "Number of inbound packets that a port which is down or congested discarded.", model.MetricTypeCounter, Full, 0, 0},
	{"port_discards_transmitted_total", "Number of outbound packets that a port which is down or congested discarded.", model.MetricTypeCounter, Full, 0, 0},
	{"port_errors_received_total", "Number of packets with an error that were received on this port.", model.MetricTypeCounter, Lean, 0, 0},
	{"port_packets_received_total", "Number of packets received on all virtual lanes, errors included.", model.MetricTypeCounter, Full, 60, 3.6e5},
	{"port_packets_transmitted_total", "Number of packets transmitted on all virtual lanes, errors included.", model.MetricTypeCounter, Full, 60, 3.6e5},
	{"port_receive_remote_physical_errors_total", "Number of received packets that were marked bad on their way.", model.MetricTypeCounter, Full, 0, 0},
	{"port_receive_switch_relay_errors_total", "Number of packets that the switch could not forward.", model.MetricTypeCounter, Full, 0, 0},
	{"port_transmit_wait_total", "Number of ticks in which the port had data and could not send.", model.MetricTypeCounter, Full, 0, 900},
	{"rate_bytes_per_second", "Maximum signal transfer rate.", model.MetricTypeGauge, Lean, 5e10, 0},
	{"state_id", "State of the port (4: active).", model.MetricTypeGauge, Lean, 4, 0},
	{"symbol_error_total", "Number of minor link errors on the port's lanes.", model.MetricTypeCounter, Full, 0, 0},
	{"unicast_packets_received_total", "Number of unicast packets received, errors included.", model.MetricTypeCounter, Full, 60, 3.6e5},
	{"unicast_packets_transmitted_total", "Number of unicast packets transmitted, errors included.", model.MetricTypeCounter, Full, 60, 3.6e5},
	{"vl15_dropped_total", "Number of management packets dropped for want of room.", model.MetricTypeCounter, Full, 0, 0},
}

func infinibandFamilies(d Detail) []family {
	var out []family
	for i := range infinibandFields {
		f := &infinibandFields[i]
		if f.detail > d {
			continue
		}
		out = append(out, family{"node_infiniband_" + f.name, f.help, f.typ, func(p *page, e *emitter) {
			for i, device := range []string{"mlx5_0", "mlx5_1"} {
				c := curve{base: f.idle}
				if f.typ == model.MetricTypeCounter && f.idle+f.perGPU > 0 {
					share := between(hash(p.h, 'i', uint64(i)), 0.45, 0.55) // the two are not quite even
					c = curve{kind: counter, whole: true, base: f.idle, k: f.perGPU * share, st: p.host.load, pr: p.machine}
				}
				e.add(c, "device", device, "port", "1")
			}
		}})
	}
	if d == Full {
		info := func(_ *page, e *emitter) {
			for _, device := range []string{"mlx5_0", "mlx5_1"} {
				e.add(curve{base: 1}, "board_id", "MT_0000000838", "device", device, "firmware_version", "28.43.2026", "hca_type", "MT4129")
			}
		}
		out = append(out, family{"node_infiniband_info", "Non-numeric data from /sys/class/infiniband/<device>, value is always 1.", model.MetricTypeGauge, info})
	}
	return out
}
