# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2153,SC2154
# Command line of tests/host/run: every option is checked before anything is built.

usage() {
        cat <<EOF
Usage: tests/host/run [OPTION]... -- COMMAND [ARG]...

Boots an emulated host, runs COMMAND on it as root in /root, and exits with its status.

  --arch amd|intel        amd: QEMU, NPT, Debian with systemd (default); intel: Bochs, EPT, busybox
  --kernel NAME           6.12 (default) or 6.1: the distribution's kernel with our KVM modules; debug: our own build
                          of 6.12 with checks; stock or stock-6.1: the distribution's modules
  --gtdp off|allow|force  kvm.gtdp= on the kernel's command line; not on a stock kernel (default: allow)
  --bare                  do not install the product's packages; modules come from kernel/build-modules
  --param NAME=VALUE      on the kernel's command line, like kvm_intel.pml=0; may be repeated
  --cpus N                default 2; intel: 1
  --cpu MODEL             the emulator's CPU: QEMU's -cpu MODEL (amd), Bochs' model=MODEL (intel)
  --memory SIZE           like 3G or 2560M; default 3G; intel: 4G at most
  --nodes N               NUMA nodes; memory and CPUs are split evenly (amd only)
  --hugepages 2M=N,1G=N   reserved at boot, spread over the nodes
  --icount                time counts instructions, 2 ns each (amd only; Bochs always does)
  --timeout SECONDS       for boot and COMMAND together; default 900
  --copy FILE             file or directory that is put into /root of the host; may be repeated
  --out DIR               afterwards, what COMMAND left in /root/out is put into DIR, and the kernel's log
                          as DIR/kernel.log
  --debian                intel: Debian with systemd and our packages, as on amd; takes minutes to start
  --no-tdpd               tdpd is installed and does not run (amd only)
  --link DIR/NAME         a host of a pair, see tests/host/pair (amd only)
  --until FILE            the run ends well when FILE appears, whatever COMMAND does
  --selftests             KVM selftests in /opt/kvm-selftests of the host
  --prepare               only make what is missing (image, modules, packages); takes no COMMAND
  --verbose               kernel log and progress on stderr

Exit status: that of COMMAND; 125 if the host did not come up, went down or timed out; 1 if COMMAND
succeeded but the kernel logged a BUG, WARNING or call trace; 2 for wrong options.
EOF
}

# need_number OPTION VALUE MIN MAX
need_number() {
        if [[ ! $2 =~ ^[0-9]{1,9}$ ]] || (( 10#$2 < $3 || 10#$2 > $4 )); then
                die_usage "$1 '$2': a number from $3 to $4 is needed"
        fi
}

# need_one_of OPTION VALUE CHOICE...
need_one_of() {
        local option=$1 value=$2 choice
        shift 2
        for choice; do
                [[ $value != "$choice" ]] || return 0
        done
        die_usage "$option '$value': must be one of: $*"
}

parse_memory() {
        [[ $1 =~ ^([0-9]{1,6})([MG])$ ]] || die_usage "--memory '$1': must be a number with M or G, like 3G"
        MEMORY_MB=$(( 10#${BASH_REMATCH[1]} ))
        [[ ${BASH_REMATCH[2]} == M ]] || MEMORY_MB=$(( MEMORY_MB * 1024 ))
        (( MEMORY_MB >= 512 && MEMORY_MB <= 65536 )) || die_usage "--memory '$1': must be from 512M to 64G"
}

parse_hugepages() {
        local part parts
        IFS=, read -r -a parts <<<"$1"
        (( ${#parts[@]} )) || die_usage "--hugepages '': must look like 2M=256,1G=1"
        for part in "${parts[@]}"; do
                [[ $part =~ ^(2M|1G)=([0-9]{1,6})$ ]] ||
                        die_usage "--hugepages '$1': '$part' is not 2M=N or 1G=N"
                case ${BASH_REMATCH[1]} in
                2M)     HUGE_2M=$(( 10#${BASH_REMATCH[2]} ));;
                1G)     HUGE_1G=$(( 10#${BASH_REMATCH[2]} ));;
                esac
        done
}

# Sets KERNEL (gtdp or stock: whose KVM modules), SERIES, KERNEL_KIND (who makes it: KIND_kernel_prepare,
# KIND_modules_prepare), and FLAVOUR, the name of what is cached for it.
parse_kernel() {
        need_one_of --kernel "$1" 6.12 6.1 debug stock stock-6.1 gtdp
        KERNEL=gtdp SERIES=6.12 KERNEL_KIND=distribution FLAVOUR=gtdp
        case $1 in
        gtdp|6.12)      ;;
        6.1)            SERIES=6.1 FLAVOUR=gtdp-6.1;;
        debug)          KERNEL_KIND=debug FLAVOUR=gtdp-debug;;
        stock)          KERNEL=stock FLAVOUR=stock;;
        stock-6.1)      KERNEL=stock SERIES=6.1 FLAVOUR=stock-6.1;;
        esac
}

parse_options() {
        local given_gtdp='' given_cpus='' given_memory='' option value base
        local -A seen=()

        parse_kernel 6.12
        ARCH=amd GTDP=allow BARE=0 NODES=1 HUGE_2M=0 HUGE_1G=0 ICOUNT=0 TIMEOUT=900
        SELFTESTS=0 DEBIAN=0 PREPARE=0 OUT='' CPU='' COPY=() PARAMS=() COMMAND=() NO_TDPD=0 LINK='' UNTIL=''

        while (( $# )); do
                option=$1
                shift
                case $option in
                --)             COMMAND=("$@"); break;;
                -h|--help)      usage; exit 0;;
                --bare)         BARE=1; continue;;
                --icount)       ICOUNT=1; continue;;
                --debian)       DEBIAN=1; continue;;
                --no-tdpd)      NO_TDPD=1; continue;;
                --selftests)    SELFTESTS=1; continue;;
                --prepare)      PREPARE=1; continue;;
                -v|--verbose)   VERBOSE=1; continue;;
                --*=*)          value=${option#*=}; option=${option%%=*};;
                --*)            (( $# )) || die_usage "$option: unknown, or its value is missing"
                                value=$1; shift;;
                *)              die_usage "'$option': not an option; COMMAND comes after '--'";;
                esac

                case $option in
                --arch)         need_one_of "$option" "$value" amd intel; ARCH=$value;;
                --kernel)       parse_kernel "$value";;
                --gtdp)         need_one_of "$option" "$value" off allow force; GTDP=$value given_gtdp=1;;
                --param)        [[ $value =~ ^[a-z][A-Za-z0-9_.-]*=[A-Za-z0-9_.,:-]+$ ]] ||
                                        die_usage "--param '$value': must be NAME=VALUE, like kvm_intel.pml=0"
                                PARAMS+=("$value");;
                --cpus)         need_number "$option" "$value" 1 64; given_cpus=$(( 10#$value ));;
                --memory)       parse_memory "$value"; given_memory=$MEMORY_MB;;
                --nodes)        need_number "$option" "$value" 1 8; NODES=$(( 10#$value ));;
                --hugepages)    parse_hugepages "$value";;
                --timeout)      need_number "$option" "$value" 1 86400; TIMEOUT=$(( 10#$value ));;
                --cpu)          [[ $value =~ ^[A-Za-z0-9_,+=.-]+$ ]] || die_usage "--cpu '$value': not a CPU model"
                                CPU=$value;;
                --out)          [[ $value ]] || die_usage "--out: a directory is needed"
                                OUT=$value;;
                --link)         [[ -d $value ]] || die_usage "--link '$value': no such directory"
                                LINK=$value;;
                --until)        [[ $value ]] || die_usage "--until: a file is needed"
                                UNTIL=$value;;
                --copy)         [[ -e $value ]] || die_usage "--copy '$value': no such file"
                                base=$(basename -- "$value")
                                [[ ! ${seen[$base]-} ]] || die_usage "--copy '$value': /root/$base is taken already"
                                [[ $base != out ]] || die_usage "--copy '$value': /root/out is for results"
                                seen[$base]=1
                                COPY+=("$value");;
                *)              die_usage "'$option': no such option";;
                esac
        done

        (( ${#COMMAND[@]} || PREPARE )) || die_usage "no COMMAND given; it comes after '--'"
        (( ! ${#COMMAND[@]} || ! PREPARE )) || die_usage "--prepare runs nothing: it takes no COMMAND"
        [[ $KERNEL == gtdp || ! $given_gtdp ]] ||
                die_usage "--gtdp: the stock kernel has no such parameter; use --kernel 6.12"

        if [[ $ARCH == intel ]]; then
                : "${CPU:=corei7_skylake_x}"
                CPUS=${given_cpus:-1} MEMORY_MB=${given_memory:-3072}
                (( CPUS == 1 )) || die_usage "--cpus $CPUS: the intel host has one CPU"
                (( MEMORY_MB <= 4096 )) || die_usage "--memory ${MEMORY_MB}M: the intel host has 4G at most"
                (( NODES == 1 )) || die_usage "--nodes $NODES: the intel host has one node; use --arch amd"
                (( ! NO_TDPD )) || die_usage "--no-tdpd: only for --arch amd; the intel host has none"
                [[ ! $LINK ]] || die_usage "--link: only for --arch amd"
                (( ! DEBIAN || ! SELFTESTS )) || die_usage "--selftests: on intel without --debian only"
                (( ! ICOUNT )) || die_usage "--icount: only for --arch amd; time on the intel host is deterministic anyway"
        else
                (( ! DEBIAN )) || die_usage "--debian: only for --arch intel; the amd host always has it"
                : "${CPU:=EPYC,+svm,+npt,+pdpe1gb}"
                CPUS=${given_cpus:-2} MEMORY_MB=${given_memory:-3072}
        fi

        (( MEMORY_MB / NODES >= 128 )) ||
                die_usage "--nodes $NODES: less than 128M for each node of ${MEMORY_MB}M"
        (( HUGE_2M * 2 + HUGE_1G * 1024 + 384 <= MEMORY_MB )) ||
                die_usage "--hugepages: 2M=$HUGE_2M,1G=$HUGE_1G leave less than 384M of ${MEMORY_MB}M for the system; raise --memory"
}
