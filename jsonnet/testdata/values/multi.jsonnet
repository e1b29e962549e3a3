// Several clusters behind one proxy.
{
  showMultiCluster: true,
  clusterLabel: 'cluster',
  grafana: { url: 'https://grafana.example.com', uidPrefix: 'lab-' },
}
