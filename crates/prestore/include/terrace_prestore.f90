! Pre-stores for Fortran: the functions of terrace_prestore.h, which says what they do.
module terrace_prestores
  use, intrinsic :: iso_c_binding
  implicit none

  enum, bind(c)
    enumerator :: terrace_clean = 0, terrace_demote = 1
  end enum

  ! Whether this processor keeps what it cleans.
  enum, bind(c)
    enumerator :: terrace_keeps = 0, terrace_keeps_further = 1, terrace_evicts = 2
    enumerator :: terrace_absent = 3, terrace_unclear = 4
  end enum

  ! What a site has issued.
  type, bind(c) :: site_counts
    character(kind=c_char) :: name(64), file(128)
    integer(c_int32_t) :: line
    integer(c_int64_t) :: calls, lines, bytes
  end type

  ! The time to read a line again, ns, by what was done since it was written.
  type, bind(c) :: retention
    integer(c_int) :: verdict
    real(c_double) :: cached_ns, cleaned_ns, demoted_ns, evicted_ns
  end type

  interface
    subroutine prestore(location, bytes, op) bind(c, name="terrace_prestore")
      import :: c_ptr, c_size_t, c_int
      type(c_ptr), value :: location
      integer(c_size_t), value :: bytes
      integer(c_int), value :: op
    end subroutine

    subroutine prestore_copy(to, from, bytes) bind(c, name="terrace_prestore_copy")
      import :: c_ptr, c_size_t
      type(c_ptr), value :: to, from
      integer(c_size_t), value :: bytes
    end subroutine

    subroutine prestore_fill(to, byte, bytes) bind(c, name="terrace_prestore_fill")
      import :: c_ptr, c_size_t, c_int
      type(c_ptr), value :: to
      integer(c_int), value :: byte
      integer(c_size_t), value :: bytes
    end subroutine

    subroutine prestore_fence() bind(c, name="terrace_prestore_fence")
    end subroutine

    subroutine prestore_enable(on) bind(c, name="terrace_prestore_enable")
      import :: c_int
      integer(c_int), value :: on
    end subroutine

    subroutine prestore_least(bytes) bind(c, name="terrace_prestore_least")
      import :: c_size_t
      integer(c_size_t), value :: bytes
    end subroutine

    function site_at(name, file, line) bind(c, name="terrace_prestore_site_at") result(site)
      import :: c_ptr, c_char, c_int32_t
      character(kind=c_char), intent(in) :: name(*), file(*)
      integer(c_int32_t), value :: line
      type(c_ptr) :: site
    end function

    subroutine prestore_at(site, location, bytes, op) bind(c, name="terrace_prestore_at")
      import :: c_ptr, c_size_t, c_int
      type(c_ptr), value :: site, location
      integer(c_size_t), value :: bytes
      integer(c_int), value :: op
    end subroutine

    subroutine prestore_copy_at(site, to, from, bytes) bind(c, name="terrace_prestore_copy_at")
      import :: c_ptr, c_size_t
      type(c_ptr), value :: site, to, from
      integer(c_size_t), value :: bytes
    end subroutine

    subroutine prestore_fill_at(site, to, byte, bytes) bind(c, name="terrace_prestore_fill_at")
      import :: c_ptr, c_size_t, c_int
      type(c_ptr), value :: site, to
      integer(c_int), value :: byte
      integer(c_size_t), value :: bytes
    end subroutine

    function prestore_sites(counts, most) bind(c, name="terrace_prestore_sites") result(sites)
      import :: c_ptr, c_size_t
      type(c_ptr), value :: counts
      integer(c_size_t), value :: most
      integer(c_size_t) :: sites
    end function

    subroutine prestore_try(found) bind(c, name="terrace_prestore_try")
      import :: retention
      type(retention), intent(out) :: found
    end subroutine
  end interface
end module
