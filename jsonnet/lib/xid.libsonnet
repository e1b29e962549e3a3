// NVIDIA's Xid errors by what has to be done about them, as data: sources
// disagree (63, 68, 92, 109), so a site must be able to move one without
// touching five expressions. Override _config.xid.
//
//   xid    the number
//   class  app      a job brought it on itself: tell its owner, drain nothing
//          soft     let the job end, reset the GPU before the next one
//          hard     cordon, drain, reset the GPU; twice in a week: send it back
//          dead     cordon now and reboot; still there: send it back
//          link     once is a retry; twice in a day: cordon, drain, look at the whole NVLink domain. Not while it may be another node's link: see link
//          info     nothing is to be done, and nothing is told
//          action   says that the recovery which the driver wants has changed, perhaps to none: it drains nothing. GPURecoveryAction
//                   acts on what is wanted, where it is known, and is a ticket where it is not; the Xid that came with it acts by itself
//   name   what NVIDIA calls it, shortened
//   notOn  models, as a regular expression, on which it says nothing (left out: none)
//   link   of class link, whose link it may be: 'own', the GPU's; 'node', one of the node's; 'domain', any one of the NVLink domain, since its other GPUs say so too (left out: domain)
//   ticket of class soft: whether somebody is told, since no program knows what is wrong (left out: nobody)
//   source who classes it so. nvidia: the Xid catalogue (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html: RESET_GPU is hard, RESTART_VM dead) and the health checks made of it; plugin: ignored by NVIDIA's device plugin for
//          Kubernetes; gcm: Meta's health checks; imbue: Imbue's cluster checks; field: reports of operators
//
// An Xid that is not here is treated as soft and reported by GPUXidUnknown.
[
  { xid: 13, class: 'app', name: 'graphics engine exception', source: 'nvidia, plugin, gcm' },
  { xid: 31, class: 'app', name: 'GPU memory page fault', source: 'nvidia, plugin, gcm' },
  { xid: 43, class: 'app', name: 'GPU stopped processing', source: 'nvidia, plugin, gcm' },
  { xid: 45, class: 'app', name: 'preemptive cleanup after earlier errors', source: 'nvidia, plugin, gcm' },
  { xid: 46, class: 'hard', name: 'GPU stopped processing, reset needed', source: 'nvidia' },
  { xid: 48, class: 'hard', name: 'double-bit ECC error', source: 'nvidia, imbue' },
  // A cable, to the catalogue.
  { xid: 54, class: 'soft', ticket: true, name: 'auxiliary power not connected', source: 'nvidia' },
  { xid: 62, class: 'hard', name: 'internal micro-controller halt', source: 'nvidia, imbue' },
  { xid: 63, class: 'soft', name: 'row remapping recorded', source: 'gcm; imbue drains' },
  { xid: 64, class: 'hard', name: 'row remapping failed', source: 'nvidia; imbue reboots' },
  { xid: 68, class: 'app', name: 'video processor exception', source: 'plugin, gcm; imbue drains' },
  // Not on Blackwell (B100, B200, B300, GB200, GB300), which has 144 to 150 in its place.
  { xid: 74, class: 'link', link: 'node', name: 'NVLink error', source: 'nvidia, imbue', notOn: '.*B[123]00.*' },
  { xid: 79, class: 'dead', name: 'GPU has fallen off the bus', source: 'nvidia, imbue' },
  { xid: 92, class: 'soft', name: 'high rate of single-bit ECC errors', source: 'gcm; imbue drains' },
  { xid: 94, class: 'soft', name: 'contained ECC error', source: 'nvidia, imbue' },
  { xid: 95, class: 'hard', name: 'uncontained ECC error', source: 'nvidia, imbue' },
  { xid: 109, class: 'hard', name: 'context switch timeout', source: 'nvidia; plugin and gcm leave it to the job' },
  { xid: 110, class: 'hard', name: 'security fault', source: 'nvidia' },
  { xid: 119, class: 'hard', name: 'GSP RPC timeout', source: 'nvidia, imbue' },
  { xid: 120, class: 'hard', name: 'GSP error', source: 'nvidia, imbue' },
  // A correction; GB200 may tell of many.
  { xid: 121, class: 'info', name: 'C2C link corrected error', source: 'nvidia' },
  { xid: 136, class: 'hard', name: 'NVLink training failed', source: 'nvidia' },
  { xid: 137, class: 'app', name: 'NVLink privilege error', source: 'nvidia' },
  { xid: 140, class: 'hard', name: 'unrecovered ECC error', source: 'nvidia' },
  { xid: 141, class: 'info', name: 'CUDA fast path error', source: 'nvidia' },
  { xid: 143, class: 'hard', name: 'GPU initialisation failed', source: 'nvidia' },
  // Their recovery depends on a subcode that no metric has: many are to be ignored, so that one alone drains nothing; of those that need a reset GPURecoveryAction tells. Where a link of an NVL72 went down its GPU said 149, and
  // the 63 other ones of the job 145 (marin-community/marin, issue 9086).
  { xid: 144, class: 'link', name: 'NVLink SAW error', source: 'nvidia' },
  { xid: 145, class: 'link', name: 'NVLink RLW error', source: 'field' },
  { xid: 146, class: 'link', name: 'NVLink TLW error', source: 'field' },
  { xid: 147, class: 'link', name: 'NVLink TREX error', source: 'field' },
  { xid: 148, class: 'link', name: 'NVLink NVLPW error', source: 'field' },
  { xid: 149, class: 'link', link: 'own', name: 'NVLink NETIR error', source: 'field' },
  { xid: 150, class: 'link', name: 'NVLink MSE error', source: 'field' },
  { xid: 151, class: 'dead', name: 'key rotation error', source: 'nvidia' },
  { xid: 154, class: 'action', name: 'recovery action changed', source: 'nvidia' },
  // On purpose: all GPUs of a domain say it while a switch of theirs is serviced; of those that need a reset GPURecoveryAction tells.
  { xid: 155, class: 'link', name: 'NVLink down by software', source: 'nvidia; it asks for a reset of each' },
  { xid: 156, class: 'hard', name: 'resource retired', source: 'nvidia' },
  { xid: 158, class: 'hard', name: 'GPU fatal timeout', source: 'nvidia' },
  { xid: 160, class: 'info', name: 'channel retirement event', source: 'nvidia' },
  { xid: 161, class: 'info', name: 'channel retirement failure', source: 'nvidia' },
  { xid: 162, class: 'info', name: 'power smoothing engaged again', source: 'nvidia' },
  { xid: 163, class: 'info', name: 'power smoothing disengaged', source: 'nvidia' },
  // Not seen by enough to have a program drain for them.
  { xid: 167, class: 'soft', ticket: true, name: 'PCIe fatal timeout', source: 'nvidia' },
  { xid: 169, class: 'soft', ticket: true, name: 'SEC2 halt', source: 'nvidia' },
  // Beside 48, which says what to do.
  { xid: 171, class: 'info', name: 'uncorrectable DRAM error', source: 'nvidia' },
  { xid: 172, class: 'info', name: 'uncorrectable SRAM error', source: 'nvidia' },
]
