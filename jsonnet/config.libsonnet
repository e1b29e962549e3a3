// Everything that differs from one site to the next. Override any part of it:
//
//   (import 'mixin.libsonnet') + {
//     _config+:: { clusterLabel: 'region', thresholds+: { node+: { full: 0.9 } } },
//   }
{
  _config+:: {
    // Label that names the Kubernetes cluster. Every expression groups by it.
    clusterLabel: 'cluster',
    // Label of Spillway's targets that tells those that people ask from those that the ruler asks (role: people, role: rules). Not needed where they are one.
    proxyRoleLabel: 'role',
    // Label that names the node, on targets and after our scrape relabelings.
    nodeLabel: 'node',
    // Label that names a namespace.
    namespaceLabel: 'namespace',
    // Label that all targets of one shard's Prometheus servers share (`up{job="prometheus",prometheus_shard="0"}`); without it all of a cluster count as copies of each other.
    prometheusShardLabel: 'prometheus_shard',
    // Label that tells apart what each shard says of a target that all of them scrape, as deploy/exporters has it.
    seenByLabel: 'seen_by',
    // Name of the container that Prometheus runs in.
    prometheusContainer: 'prometheus',
    // Label that names a pod.
    podLabel: 'pod',
    // Labels of kube_namespace_labels that may hold the team, best first.
    teamLabels: ['label_team', 'label_owner', 'label_cost_center'],
    // Team of namespaces that have none of teamLabels.
    unassignedTeam: 'unassigned',
    // Labels of kube_pod_labels that may hold the experiment, best first: one's own, JobSet, Kubeflow, Ray, LeaderWorkerSet, Kueue, Volcano, Job. The datasource for experiments has the
    // same list in its settings, to say which of them kube-state-metrics must let through.
    experimentLabels: [
      'label_experiment',
      'label_jobset_sigs_k8s_io_jobset_name',
      'label_training_kubeflow_org_job_name',
      'label_ray_io_cluster',
      'label_leaderworkerset_sigs_k8s_io_name',
      'label_kueue_x_k8s_io_pod_group_name',
      'label_volcano_sh_job_name',
      'label_batch_kubernetes_io_job_name',
      'label_job_name',
    ],

    // Labels of pods that must all run, or none of them is of use, by what names the gang: JobSet, Kubeflow's trainer, LeaderWorkerSet (each of its replicas is one), Kueue's pod groups, Volcano, the scheduler plugins' PodGroup. The first that a pod has counts.
    gangLabels: [
      'label_jobset_sigs_k8s_io_jobset_name',
      'label_training_kubeflow_org_job_name',
      'label_leaderworkerset_sigs_k8s_io_group_key',
      'label_kueue_x_k8s_io_pod_group_name',
      'label_volcano_sh_job_name',
      'label_scheduling_x_k8s_io_pod_group',
    ],

    // Matchers that select the series of one kind of target, by what they stand for.
    selectors: {
      // kube-apiserver's /metrics.
      apiserver: 'job="kube-apiserver"',
      // kube-apiserver's /metrics/slis, which answers when /metrics is too slow to be scraped.
      apiserverSLIs: 'job="apiserver-slis"',
      // The kubelet's own page.
      kubelet: 'job="kubelet"',
      // cAdvisor's page of the kubelet.
      cadvisor: 'job="cadvisor"',
      // kube-state-metrics.
      ksm: 'job="kube-state-metrics"',
      // node_exporter, in the host's network namespace.
      nodeExporter: 'job="node-exporter"',
      // NVIDIA's dcgm-exporter.
      dcgm: 'job="dcgm-exporter"',
      // node-problem-detector.
      npd: 'job="node-problem-detector"',
      // The etcd of everything but events.
      etcd: 'job="etcd"',
      // The separate etcd of events.
      etcdEvents: 'job="etcd-events"',
      // All etcds; alerts tell them apart by their label job.
      etcdAll: 'job=~"etcd|etcd-events"',
      // The Prometheus servers that hold the shards.
      prometheus: 'job="prometheus"',
      // Spillway's admin listener.
      proxy: 'job="spillway"',
      // The exporter of iptables counters.
      iptables: 'job="iptables-exporter"',
      // kube-scheduler.
      scheduler: 'job="kube-scheduler"',
      // kube-controller-manager.
      controllerManager: 'job="kube-controller-manager"',
      // cluster-autoscaler.
      autoscaler: 'job="cluster-autoscaler"',
      // Probers that try every node from several places: probe_success{prober,node}.
      nodeMesh: 'job="node-mesh"',
      // CoreDNS.
      coredns: 'job="coredns"',
      // The ruler that evaluates global rules.
      ruler: 'job="thanos-rule"',
      // The same and the Prometheus beside each, as those see them that keep nothing but `up` of them: the shards of the cluster in which they run.
      rulerSeen: 'job="ruler"',
      rulerPrometheusSeen: 'job="ruler-prometheus"',
      // Alertmanager.
      alertmanager: 'job="alertmanager"',
      // The remediation controller of deploy/alertmanager.
      remediator: 'job="remediator"',
    },

    // What of dcgm-exporter's pages depends on its version and its set-up.
    dcgm: {
      // Label of the node on DCGM series; our scrape relabelings make it from Hostname or hostname.
      node: 'node',
      // Label of the GPU's serial identity.
      uuid: 'UUID',
      // Label of the GPU's index on its node.
      gpu: 'gpu',
      // Label of the GPU's model.
      model: 'modelName',
      // Labels of the pod that a GPU is given to; exported_namespace and exported_pod without honor_labels or our relabelings.
      namespace: 'namespace',
      pod: 'pod',
      // Pods of the exporter itself, as a regular expression: they have no GPU. A scrape that puts the target's own pod on the series, as the Prometheus operator does, would give them every GPU whose series has none.
      exporterPods: '(.+-)?dcgm-exporter-.+',
      // Where Xids are read: 'count' (DCGM_EXP_XID_ERRORS_COUNT), 'gauge' (DCGM_FI_DEV_XID_ERRORS, the last one seen) or 'kernel' (node-problem-detector).
      xidSource: 'count',
      // Unit of DCGM_FI_DEV_THERMAL_VIOLATION and its like: 'ns' from DCGM 4.1 on, 'us' up to 4.0 (dcgm_fields.h of either; default-counters.csv of dcgm-exporter says ns). No metric tells the
      // version, so that a fleet with both is rendered for the newer one: the older exporters' GPUs then seem never slowed down.
      violationUnit: 'ns',
      // Counters of links of NVLink 5 (Blackwell) that failed to recover and that did, which DCGM has there in place of DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL and …_REPLAY_… (dcgm_fields.h: 1212
      // and 1211; its health check calls the others "Pre-Blackwell only"). DCGM 4.6 calls them DCGM_FI_DEV_NVLINK_RECOVERY_FAILED_TOTAL and …_SUCCESSFUL_TOTAL, and knows the old names too: what
      // stands in dcgm-exporter's counters file is what it exports.
      nvlink5: {
        failed: 'DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS',
        recovered: 'DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS',
      },
      // Names of the gauge that says which recovery a GPU's driver wants (dcgm_fields.h: 1523), all of which are read, one at least. dcgm-exporter knows the first from 4.5.1-4.8.0 on and the second from
      // 4.6.0-4.8.3 on, and an older one does not start with a field that it does not know: the lines are commented out in our counters file. Where there is none a change of it (Xid 154) is a ticket.
      recovery: ['DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION', 'DCGM_FI_DEV_GPU_RECOVERY_ACTION'],
      // Label of a MIG slice; empty on a whole GPU.
      instance: 'GPU_I_ID',
      // Label of a MIG slice's profile, such as 1g.10gb.
      profile: 'GPU_I_PROFILE',
      // Label of a GPU that a pod has through a ResourceClaim (DRA); dcgm-exporter writes it with KUBERNETES_ENABLE_DRA.
      claimed: 'dra_driver_name',
      // … and of the namespace of that claim.
      claimNamespace: 'dra_claim_namespace',
      // Namespaces, as a regular expression, whose claims only look on (adminAccess): NVIDIA's operator claims all cards of a node for dcgm-exporter itself. No metric tells such claims from others.
      adminNamespaces: 'gpu-operator|nvidia-gpu-operator|nvidia-dra-driver-gpu',
      // Values from here on are DCGM's sentinels for "no value": 2147483632 in 32 bits, 1.4e14 for fractions, 9.2e18 in 64 bits.
      blank: 2e9,
    },

    // Kubernetes' minor version: 1.34 and 1.35 renamed labels and metrics of the API server.
    k8sMinor: 34,
    // Names that follow from k8sMinor.
    k8s: {
      local minor = $._config.k8sMinor,
      // Label of watch metrics that names what is watched.
      watchResource: if minor >= 34 then 'resource' else 'kind',
      // Labels of etcd_request_* that name what is read or written.
      etcdResource: if minor >= 34 then ['group', 'resource'] else ['type'],
      // Number of stored objects by resource.
      storedObjects: if minor >= 34 then 'apiserver_resource_objects' else 'apiserver_storage_objects',
    },

    // Resource name of a GPU, as kube-state-metrics spells it, and how many a node has.
    gpu: {
      resource: 'nvidia_com_gpu',
      perNode: 8,
      // Label of kube_node_labels that names the GPU's model.
      modelLabel: 'label_nvidia_com_gpu_product',
      // … and the one that does where that is not there: GKE's own device plugin goes without NVIDIA's feature discovery.
      modelLabelOtherwise: 'label_cloud_google_com_gke_accelerator',
      // Labels of kube_node_labels that a node only has where what it hands out as GPUs are parts of cards. Of modelLabel its ending says so (-SHARED, -MIG-…).
      partsLabels: ['label_cloud_google_com_gke_gpu_partition_size', 'label_cloud_google_com_gke_max_shared_clients_per_gpu'],
      // … and the one that names the node's NVLink domain, where that is more than the node. Without it a cluster counts as one.
      domainLabel: 'label_nvidia_com_gpu_clique',
      // GPU indices by which the largest joins are made in parts, so that each stays below the proxy's max_series.
      indexParts: ['[0-3]'],
    },

    // Xids by class; see lib/xid.libsonnet.
    xid: import 'lib/xid.libsonnet',

    node: {
      // File systems that nodes own: no memory, no image, nothing that is mounted read-only on purpose, no volume of a pod, wherever the kubelet's folder is mounted once more (Container-Optimized OS does so under /home/kubernetes).
      filesystems: 'fstype=~"ext[234]|xfs|btrfs|zfs", mountpoint!~"/boot.*|/usr|/run/.*|/snap/.*|.*/kubelet/(pods|plugins)/.*"',
      // Mounts, as a regular expression, without which the node cannot work: of what fills one of these the node is cordoned. What else fills (scratch, a volume on a local disk) is mostly meant to, or its owner's to mend.
      ownMounts: '/|/var(/log|/lib(/(kubelet|containerd|containers|docker|rancher)(/.*)?)?)?|/mnt/stateful_partition',
      // Nodes, as a regular expression over their names, on which no DaemonSet runs, so that no node-exporter is missed there: EKS' Fargate, virtual kubelets.
      unmeasured: 'fargate-.+|virtual-.+',
      // Devices of tunnels between nodes (VXLAN), as a regular expression: their neighbours are permanent, and do not count towards the limit of the neighbour table.
      tunnels: 'flannel[.].+|vxlan[.]calico|cilium_vxlan',
      // Label of kube_node_labels that names the rack.
      rackLabel: 'label_rack',
      // Label of kube_node_labels that names the zone: a site, a hall, whatever can be cut off as a whole.
      zoneLabel: 'label_topology_kubernetes_io_zone',
      // Keys of taints of nodes that are about to be deleted: cluster-autoscaler's, Karpenter's (before v1: disruption) and GKE's; or that are switched off on purpose, as people say it. The remediator's --leaving-taints has the same, and switchedOff.
      toBeDeleted: 'ToBeDeletedByClusterAutoscaler|karpenter[.]sh/disrupted|karpenter[.]sh/disruption|cloud[.]google[.]com/impending-node-termination|node[.]kubernetes[.]io/out-of-service',
      // Keys of taints by which a cloud says that a node's machine is off, whoever switched it off, or what: it is asked for no reboot, and counts as not ready as any other. Most clouds that take machines back, or stop them for a while, delete their nodes within minutes.
      // Some keep them (AKS with --scale-down-mode Deallocate, and spot machines with --eviction-policy Deallocate; stopped machines of EC2; a cluster that is stopped at night): keepsStopped says of which.
      switchedOff: 'node[.]cloudprovider[.]kubernetes[.]io/shutdown',
      // Matchers of the nodes that may be switched off and stay registered, of their labels (kube_node_labels, as far as kube-state-metrics has them) or of another taint: what a cloud says is off of them is planned, as if it were about to be deleted.
      // Nothing in one of them selects nothing by it; 'cluster="dev"' takes a whole cluster. A loss of power of these is on no page.
      keepsStopped: {
        kube_node_labels: '',
        kube_node_spec_taint: 'key="kubernetes.azure.com/scalesetpriority", value="spot"',
      },
      // How long a node may take to come up, until its network, its driver and its exporters are there.
      young: '15m',
      // How long a machine may take to boot, from when its kubelet falls silent: one of eight GPUs tests its memory for ten minutes and more. Nobody restarts a node that is not ready for less.
      boot: '20m',
      // Seconds by which the time at which a node booted may move without a restart: the kernel reckons it from a clock that is set right now and then. No machine boots in less.
      bootSeconds: 60,
      // Reasons of node-problem-detector that speak of a failing disk: a ticket, or a drain where a file system of the node is read-only or cannot be read. MemoryReadError is none: it is a memory error that was corrected. Ext4Warning tells of no damage.
      // Errors of a file system that tell of who asks, and not of a disk: node-exporter is no root, and a mount below a folder that is closed to it is refused. Nodes are not drained for those.
      askersErrors: 'permission denied|no such file or directory',
      // Versions of node-exporter, as a regular expression, that are believed when they say that a file system can be written to. 1.10.1 to 1.11.1 say so of every one with a second mount option, and 1.9 does not look at the
      // superblock, which is what the kernel makes read-only. Add your own builds that have node_exporter's pull requests 3157 and 3659.
      readonlyExporters: 'v?(0[.].+|1[.][0-8][.].+|1[.]10[.]0|1[.](1[2-9]|[2-9][0-9])[.].+|([2-9]|[1-9][0-9])[.].+)',
      diskProblems: 'IOError|Ext4Error|XfsHasShutdown|BufferIOError',
    },

    // What is missed when service discovery no longer has it. A cluster that never had a job misses nothing.
    targets: {
      // For how long what was there counts as usual: a job that was given up is told of for so long.
      memory: '3d',
      // Jobs, as a regular expression, without which most alerts are blind: it pages when one has no target left.
      critical: 'kube-state-metrics',
      // Jobs that rules and dashboards read, as selectors has them.
      read: 'kube-apiserver|apiserver-slis|kubelet|cadvisor|kube-state-metrics|node-exporter|dcgm-exporter|node-problem-detector|etcd|etcd-events|prometheus|spillway|iptables-exporter|kube-scheduler|kube-controller-manager|cluster-autoscaler|node-mesh|coredns|thanos-rule|ruler|ruler-prometheus|alertmanager|remediator',
      // Jobs, as a regular expression, that an autoscaler makes larger and smaller by the load: that they have fewer targets than usual is no trouble. That one has none is.
      elastic: 'spillway|coredns',
      // The job that has a target on every machine and does not hear of them from kube-state-metrics.
      machines: 'node-exporter',
      // Jobs, as a regular expression, that have a target on every node, also on those on which no node-exporter runs (node.unmeasured).
      everywhere: 'kubelet|cadvisor|node-mesh',
      // What a cluster may have, by the name that the dashboard of alerts shows: the selector that finds it by its label job (one without it is left out), and what is not told where nobody scrapes it. A managed control plane hides its etcd, a
      // fleet without iptables-exporter its traffic: no alert fires for that, and the dashboard says so.
      watched: (import 'lib/watched.libsonnet')($._config.selectors),
    },

    alertmanager: {
      // Integrations, as a regular expression, by which only programs are told, as in deploy/alertmanager: the remediation controller and the dead man's switch. That they fail is a ticket. Where people are called by webhook make it ''.
      programs: 'webhook',
    },

    network: {
      // Byte counter of the iptables exporter; iptables_bytes in another one.
      bytes: 'iptables_rule_bytes_total',
      // Label that our scrape relabelings make of a rule's comment, and its values.
      trafficLabel: 'traffic',
      traffic: { 'in': 'internet-in', out: 'internet-out' },
      // Chain of the rules that see traffic of pods with networks of their own, and no other: each exporter spells it in its way.
      podChain: 'chain=~"FORWARD|forward"',
      // Interface of a pod's own network that leads out of it. Further ones (Multus) are those of storage and RDMA.
      podInterface: 'interface="eth0"',
      // Bytes a second of a node's internet traffic from which a namespace's pods there are told apart; less goes with the rest of the node.
      podBytesPerSecond: 1000,
      // Interfaces of nodes that are Ethernet and no part of another: not the loopback, not IP over InfiniBand, not bonds and bridges over counted ones.
      ethernet: 'device!~"lo|ib.*|bond.*|br.*|vlan.*|.*[.].*"',
    },

    reservation: {
      // Taint that keeps nodes for the team that is its value.
      taint: 'team',
    },

    // Quantiles over all nodes that are recorded.
    quantiles: [0.5, 0.9, 0.99],

    // Money for one GPU-hour by modelName, or by gpu.modelLabelOtherwise; `default` for every other model.
    prices: {
      currency: 'USD',
      gpuHour: {
        'NVIDIA H100 80GB HBM3': 2.5,
        'NVIDIA H200': 3.2,
        'NVIDIA A100-SXM4-80GB': 1.4,
        // The same as GKE's label has them.
        'nvidia-h100-80gb': 2.5,
        'nvidia-h100-mega-80gb': 2.5,
        'nvidia-h200-141gb': 3.2,
        'nvidia-a100-80gb': 1.4,
        default: 2,
      },
    },

    // Label values of severity. auto: one node or GPU, for the remediation controller, never a phone;
    // info: for the owner to read; warning: in working hours; critical: pages.
    severities: {
      auto: 'auto',
      info: 'info',
      warning: 'warning',
      critical: 'critical',
    },
    // What every Kubernetes object carries that `spillway mixin render --format k8s` writes.
    kubernetes: {
      namespace: 'monitoring',
      // Labels by which the operator's Prometheus or ThanosRuler finds its rules.
      labels: { 'app.kubernetes.io/part-of': 'spillway' },
      // The label by which Grafana's sidecar finds ConfigMaps with dashboards, and the annotation that names their folder.
      grafanaSidecar: { label: 'grafana_dashboard', value: '1', folderAnnotation: 'grafana_folder' },
      // Labels of those Grafana objects of grafana-operator that get the dashboards.
      grafanaInstances: { dashboards: 'grafana' },
    },
    // Names of alerts to leave out.
    disabledAlerts: [],

    // Address of an alert's runbook; %s is the alert's name.
    runbookURLPattern: 'https://github.com/spillwayproject/spillway/blob/main/docs/runbooks/%s.md',

    // Dashboards, as links in alerts and as generated.
    grafana: {
      // Address of Grafana, without a slash at its end.
      url: 'http://localhost:3000',
      // Begins each dashboard's uid.
      uidPrefix: 'spillway-',
      // Folder that dashboards are provisioned into.
      folder: 'Spillway',
      // Tags on each dashboard.
      tags: ['spillway'],
      // Regular expression over the names of the data sources that dashboards let the reader choose; '' is all of type Prometheus.
      datasourceRegex: '',
      // How often a dashboard asks again: not every 10 s at 7,500 nodes.
      refresh: '1m',
      // Rest of a dashboard's uid by the name that alerts use for it.
      dashboards: {
        fleet: 'fleet',
        apiserver: 'apiserver',
        etcd: 'etcd',
        gpuFleet: 'gpu-fleet',
        gpuNode: 'gpu-node',
        gpuUse: 'gpu-use',
        node: 'node',
        network: 'network',
        prometheus: 'prometheus',
        proxy: 'proxy',
        cardinality: 'cardinality',
        cost: 'cost',
        pending: 'pending',
        alerts: 'alerts',
      },
    },
    // Whether dashboards let the reader choose a cluster.
    showMultiCluster: true,

    // Divides every duration of rules: `for`, ranges, offsets, intervals. 1 in production; 30 rehearses a ten-minute alert in twenty seconds.
    timeScale: 1,
    // How often a group is evaluated that does not say otherwise.
    evaluationInterval: '30s',
    // How often targets are scraped; rules that count samples need it.
    scrapeInterval: '30s',

    // Objectives and the windows in which the spending of their error budget is judged.
    slo: {
      // The burn is judged over a long window, and over a short one so that it ends soon after the trouble.
      // factor: how many times faster than allowed the budget goes; at these, 2 %, 5 %, 10 % and 10 % of 30 days' budget are gone.
      windows: [
        { long: '1h', short: '5m', factor: 14.4, hold: '2m', severity: 'critical' },
        { long: '6h', short: '30m', factor: 6, hold: '15m', severity: 'critical' },
        { long: '1d', short: '2h', factor: 3, hold: '1h', severity: 'warning' },
        { long: '3d', short: '6h', factor: 1, hold: '3h', severity: 'warning' },
      ],
      apiserver: {
        // Share of requests that must be answered, and in time.
        target: 0.99,
        // Days that the budget is for.
        days: 30,
        // Upper bounds, in seconds, that a request must be answered within; each must be a bucket of the histogram.
        // Prometheus 3 stores them as 1.0 and 30.0, Prometheus 2 as 1 and 30: the rules take both.
        slowResource: 1,
        slowNamespace: 5,
        slowCluster: 30,
        slowWrite: 1,
        // Subresources that are streams or proxies, whose time says nothing, and probes.
        notCounted: 'proxy|attach|log|exec|portforward|/readyz|/livez|/healthz',
      },
      proxy: {
        // Share of requests that Spillway must not fail.
        availability: 0.999,
        // Share of requests that must be answered within latencySeconds.
        latency: 0.99,
        // Must be a bucket of spillway_request_duration_seconds.
        latencySeconds: 10,
      },
    },

    // Where alerts begin, by group. Shares are of 1. A volume guard keeps a share of next to nothing quiet.
    thresholds: {
      apiserver: {
        // 429 answers as a share of all.
        throttling: 0.005,
        // … and at least so many a second.
        throttlingPerSecond: 1,
        // 429 answers as a share of all at which controllers and kubelets starve.
        throttlingSevere: 0.05,
        // 5xx answers as a share of all.
        errors: 0.02,
        // … and at least so many a second.
        errorsPerSecond: 0.5,
        // Requests a second from which an error budget must be measured.
        budgetTrafficPerSecond: 1,
        // Requests a second that one flow schema has refused.
        rejectedPerSecond: 1,
        // Seats taken as a share of a priority level's.
        seats: 0.9,
        // Resident bytes of one API server.
        memoryBytes: 100 * 1024 * 1024 * 1024,
        // Largest over smallest resident size among a cluster's API servers.
        memoryImbalance: 2,
        // … while the largest has at least so many bytes.
        memoryImbalanceBytes: 8 * 1024 * 1024 * 1024,
        // Bytes a second of watch events for one resource.
        watchBytesPerSecond: 100 * 1000 * 1000,
        // Answers a second that the aggregator gives in place of an API it cannot reach.
        aggregatorPerSecond: 0.1,
        // Share of API servers whose /metrics must be scraped, over five minutes.
        measured: 0.5,
        // Calls a minute of one admission webhook that fail: three in five minutes.
        webhookErrorsPerMinute: 0.6,
      },
      etcd: {
        // Changes of leader in 15 minutes.
        leaderChanges: 3,
        // Seconds that 99 % of fsyncs of the log stay under. A bound of etcd's buckets (1, 2, 4, 8, 16, 32 ms and so on): between two of them nobody knows, and 9 ms would read as 15.9.
        fsyncSeconds: 0.016,
        // … while there are at least so many a second.
        fsyncsPerSecond: 1,
        // Size of the database as a share of its quota.
        quota: 0.8,
        // Share of the quota that a forecast for four hours from now reaches.
        forecast: 1,
        // Share of the quota from which such a forecast counts.
        forecastFrom: 0.3,
      },
      controlPlane: {
        // Pods in the scheduler's active queue, at the least in ten minutes.
        waitingPods: 3,
        // Objects in one queue of the controller manager, at the least in a quarter of an hour.
        waitingItems: 3,
      },
      certificates: {
        // Seconds that the certificate of a client of the API server is still good for: a bucket of a histogram, which are 1, 2, 4 and 7 days. Four outlast a weekend, and most who renew by
        // themselves do it before.
        endsSeconds: 4 * 24 * 3600,
        // … at which it pages.
        endsSoonSeconds: 24 * 3600,
        // Requests a minute with such certificates.
        requestsPerMinute: 1,
        // … and so many times those of a week before, which short-lived certificates explain.
        usual: 3,
        // Seconds that the certificate of a kubelet is still good for while it fails to get a new one.
        kubeletSeconds: 24 * 3600,
        // Such kubelets as a share of all nodes.
        kubelets: 0.01,
        // … and at least so many.
        kubeletNodes: 3,
      },
      dns: {
        // SERVFAIL answers as a share of all.
        errors: 0.01,
        // … and at least so many a second.
        errorsPerSecond: 1,
        // Seconds that 99 % of answers stay under.
        slowSeconds: 1,
        // … while there are at least so many a second.
        answersPerSecond: 1,
      },
      gpu: {
        // Degrees Celsius.
        hotCelsius: 85,
        // … of the memory (HBM), which is the hotter one of a sound GPU.
        hotMemoryCelsius: 95,
        // Share of time that a GPU was slowed down for its heat.
        throttled: 0.05,
        // NVLink replays in 15 minutes; one recovery is enough.
        nvlinkReplays: 100,
        // Recoveries of NVLink 5 in an hour that succeeded; between whole numbers, since an increase is an estimate. Of 5,760 links that somebody looked at, one had any: three in 21 minutes, five days
        // before it failed (marin-community/marin, issue 9086).
        nvlinkRecoveries: 1.5,
        // Nodes of an NVLink domain, or of a cluster where none is known, whose GPUs lose NVLinks within half an hour from which on what they share, a switch, is taken for the fault, and no node is
        // drained for it. Of Xids it is within a day where the domain is known.
        nvlinkNodes: 3,
        // PCIe replays a minute.
        pcieReplaysPerMinute: 8,
        // GPUs that one namespace leaves idle are so many, or more.
        idleGPUs: 8,
        // Times in a day that a GPU had NVLink Xids; what comes within five minutes is one.
        linkXids: 2,
        // Share of time below which a GPU counts as idle.
        idleActive: 0.01,
        // Share of time above which a GPU of which no pod is known is at work.
        heldActive: 0.05,
        // GPUs at work of which no pod is known, as a share of all.
        unattributed: 0.05,
      },
      node: {
        // Share of tries below which a prober counts as not reaching a node.
        reachable: 0.5,
        // Share of the probers that answer that must agree on that.
        probersAgree: 0.75,
        // … of at least so many that answer. Two: of three, which is what most have, one may be gone; a lone one cannot tell a bad node from a bad prober.
        probers: 2,
        // Bytes used as a share of a file system.
        full: 0.95,
        // Inodes used as a share of a file system's.
        inodes: 0.95,
        // Entries of the connection table as a share of nf_conntrack_max.
        conntrack: 0.8,
        // Seconds that a clock may be off.
        clockSeconds: 0.05,
        // … as its exporter tells the time, beside that of most nodes. Scrapes are late by less.
        clockApartSeconds: 1,
        // Seconds that the kernel takes a clock to be off at most, from which nobody keeps it right. The kernel counts no further than 16.
        clockErrorSeconds: 16,
        // Entries of the neighbour table as a share of gc_thresh3.
        arp: 0.8,
        // Nodes with a neighbour table that overflowed at which it is an outage of the cluster and no longer of a node.
        arpOverflowNodes: 3,
        // Nodes with a file system that went read-only within a quarter of an hour at which it is no longer the disk of one of them. Of 10,000 nodes one or two a day lose theirs.
        readonlyNodes: 3,
        // Nodes that cannot be reached any more since one quarter of an hour at which it is no longer one of them.
        unreachableNodes: 3,
        // Restarts of a node in six hours that nobody planned. A machine that somebody repairs has one or two.
        restarts: 3,
      },
      fleet: {
        // Nodes not ready as a share of all.
        notReady: 0.01,
        // … and at least so many: one node of a small cluster is no page.
        notReadyNodes: 3,
        // Nodes that most probers do not reach, as a share of all.
        unreachable: 0.01,
        // … and at least so many.
        unreachableNodes: 3,
        // Nodes of a rack or a zone that are lost, as a share of it.
        location: 0.8,
        // … and at least so many.
        locationNodes: 3,
        // Share of the lost nodes that must still answer to something for the place to be cut off and not dark.
        locationAnswering: 0.5,
        // GPUs that are there and cannot be allocated, as a share of all.
        gpuUnhealthy: 0.02,
        // … on at least so many nodes.
        gpuUnhealthyNodes: 3,
        // GPUs of ready nodes that no exporter measures, as a share of all. More than of the others, since jobs go on: what is lost is the sight of faults. Of 60,000 GPUs these are 3,000, and one
        // of so many stops its job each day (Meta's report on Llama 3: 246 times in 54 days on 16,384).
        gpuUnmeasured: 0.05,
        // … and at least those of so many nodes with gpu.perNode of them.
        gpuUnmeasuredNodes: 3,
        // Share of a node's GPUs that must be hot, or slowed down for their heat, for it to be the node's cooling and no longer a GPU's.
        gpuHot: 0.5,
        // Such nodes as a share of all. Less than of the others, since a row of racks is no more than this of 7,500 nodes.
        gpuHotNodesShare: 0.005,
        // … and at least so many.
        gpuHotNodes: 3,
        // Nodes with a finding for the remediation controller that fell sick within an hour, as a share of all. Of 7,500 these are 75; single faults are a few in an hour.
        failing: 0.01,
        // … and at least so many.
        failingNodes: 10,
        // … or so many that have the same (alertname and action), whatever their share: 80,000 GPUs have one or two faults in an hour, all kinds together (Llama 3's report: 419 in 54 days of 16,384), of which ten are the same by chance once in years, and hold the controller back for an hour then. Of NodeUnreachable, as many within three hours.
        failingAlike: 10,
      },
      targets: {
        // Share of a job's usual targets, or of the usual nodes, that is gone.
        gone: 0.1,
        // Full hours, within targets.memory, at which a job that no rule reads must have been there.
        hours: 24,
      },
      network: {
        // Share of nodes that must report tagged counters.
        accounting: 0.98,
        // … while at least so many do not.
        accountingNodes: 3,
        // Bytes to the internet over the mean of a week.
        egressFactor: 5,
        // … and at least so many bits a second.
        egressBitsPerSecond: 1e9,
        // Times that one InfiniBand link went down in an hour; between whole numbers, since an increase is an estimate.
        infinibandDowns: 2.5,
        // Active InfiniBand ports that a node lacks of the median of its GPU model.
        infinibandPorts: 1,
        // Nodes of one GPU model that a node's InfiniBand ports are compared with, at least.
        infinibandPeers: 3,
      },
      pending: {
        // Share of GPUs that are free while pods wait for some.
        freeShare: 0.1,
        // … and at least so many.
        freeGPUs: 8,
        // Seconds since the autoscaler last went round its loop.
        autoscalerSeconds: 600,
        // Failed scale-ups for one reason in an hour; between whole numbers, since an increase is an estimate. Back-off makes them rare.
        scaleUpFailures: 1.5,
      },
      cost: {
        // Share of GPU-hours that belong to no team.
        unassigned: 0.02,
        // … and at least so many GPU-hours in an hour.
        unassignedGPUs: 4,
        // Used share of a team's reserved GPUs below which they count as idle.
        reservationUsed: 0.1,
        // … of at least so many.
        reservationGPUs: 16,
        // … while others wait for at least so many, on the mean of a day.
        reservationWanted: 8,
      },
      prometheus: {
        // What a server could not give back at its last collection, as a share of its GOMEMLIMIT.
        reachable: 0.9,
        // Resident memory as a share of the container's limit, of a server that does not know its GOMEMLIMIT.
        memory: 0.85,
        // Restarts after running out of memory, in three hours.
        oomRestarts: 2,
        // Seconds that reading the write-ahead log took at the last start.
        replaySeconds: 900,
        // Head series expected in four hours over now.
        headGrowth: 1.5,
        // … while the head holds at least so many.
        headSeries: 1000 * 1000,
        // Samples of a scrape of a job over those of the day before, and over how many times the nodes it has become.
        jobGrowth: 1.5,
        // … while the job has at least so many.
        jobSamples: 10 * 1000,
        // Seconds that 99 % of calls of /api/v1/series stay under. An edge of Prometheus' buckets (8, 20, 60): between two of them it would be a guess.
        seriesAPISeconds: 20,
        // … where there are so many calls a second, so that one slow call is not 1 % of them.
        seriesAPIRate: 0.01,
        // Starts of one server in an hour that count as a crash loop.
        crashes: 3,
        // Share of a shard's servers in a crash loop: one of a pair is enough, the other one gets the same samples.
        crashing: 0.5,
        // Share of time in five minutes that at least one server of a shard must answer.
        pairUp: 0.5,
        // Seconds that remote write is behind.
        remoteWriteBehindSeconds: 120,
        // Samples that remote write gave up, as a share of all.
        remoteWriteFailed: 0.01,
        // Targets of a job that cannot be scraped, as a share.
        targetsDown: 0.1,
      },
      spillway: {
        // Requests that Spillway failed, as a share of all.
        errors: 0.05,
        // … and at least so many a second.
        errorsPerSecond: 0.1,
        // Partial answers a second.
        partialPerSecond: 0.1,
        // Refused requests as a share of all.
        refused: 0.2,
        // … and at least so many a second.
        refusedPerSecond: 0.5,
        // Requests refused by a bound of Spillway's own capacity, as a share of all.
        overloaded: 0.01,
        // … and at least so many a second.
        overloadedPerSecond: 0.05,
        // Memory that is really held as a share of what may be.
        held: 0.85,
        // Calls that wait for a place at a shard, or in the process, on average.
        callsWaiting: 1,
        // Most memory that requests held at once as a share of memory.budget.
        memory: 0.85,
        // Seconds that 99 % of requests must not exceed. A bound of the histogram's buckets.
        latencySeconds: 2.5,
        // Seconds within which 90 % of a replica's answers must begin. A bound of the histogram's buckets.
        shardSlowSeconds: 1,
        // … for at least so many calls a second.
        shardSlowPerSecond: 0.02,
        // Calls to a replica that fail although it says that it is ready, as a share of all.
        replicaFailures: 0.5,
        // … and at least so many a second.
        replicaFailuresPerSecond: 0.02,
        // Targets that a replica fails to reach and another one of its shard reaches, as a share of these.
        replicaUnreached: 0.1,
        // Seconds for which a replica may lack what another one has. What it missed while it was away is known and behind it after eleven minutes.
        replicaLackingSeconds: 1800,
        // Processor time as a share of what Spillway may use.
        processor: 0.9,
        // Queries whose series are fetched for a cause that lies with the servers, as a share of all.
        rawPlans: 0.3,
        // … and at least so many a second.
        rawPlansPerSecond: 0.1,
        // Requests a second from which Spillway's own error budget is judged.
        budgetTrafficPerSecond: 0.1,
        // Evaluations of the ruler that fail, as a share of all.
        ruleFailures: 0.05,
        // Intervals of a rule group for which no ruler has evaluated it; three minutes at least.
        rulerIntervals: 3,
        // Notifications that Alertmanager could not send, as a share of all.
        notifications: 0.05,
      },
      relabel: {
        // Share of the planned saving that drop rules must achieve.
        achieved: 0.8,
      },
    },
  },
}
