// What a cluster may have to scrape, by the name that the dashboard of alerts
// shows: the selector that finds it by its label job, and what is not told where
// nobody scrapes it.
function(s) {
  'API server': [s.apiserver, 'its errors, latency, throttling, admission webhooks and certificates of clients'],
  etcd: [s.etcdAll, 'its quorum, leader, disk and size'],
  scheduler: [s.scheduler, 'a scheduler that is stuck or leads nobody'],
  'controller manager': [s.controllerManager, 'queues that grow, a leader that is lost'],
  autoscaler: [s.autoscaler, 'an autoscaler that has stopped or gets no nodes'],
  'kube-state-metrics': [s.ksm, 'nodes, pods, shares of the fleet, cost'],
  kubelet: [s.kubelet, 'certificates of kubelets, volumes'],
  cadvisor: [s.cadvisor, 'what pods use, and their traffic'],
  node_exporter: [s.nodeExporter, 'disks, file systems, clocks, tables, links of nodes'],
  'dcgm-exporter': [s.dcgm, 'the health, heat and use of GPUs'],
  'node-problem-detector': [s.npd, 'what the kernel log says of disks and GPUs'],
  'probers of nodes': [s.nodeMesh, 'nodes that report and cannot be reached'],
  CoreDNS: [s.coredns, 'its errors and latency'],
  'iptables-exporter': [s.iptables, 'internet traffic by namespace, and its accounting'],
  Prometheus: [s.prometheus, 'its memory, replay, series and lost samples'],
}
